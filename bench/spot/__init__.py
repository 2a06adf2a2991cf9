"""Replay of spot traces: what each policy costs, against an omniscient optimum."""
