"""Where a gang runs next: spot, on-demand, reserved capacity, or nowhere; pure functions without libraries.

Used by `trainyard run advise` and by the benchmark `spot`.
"""
