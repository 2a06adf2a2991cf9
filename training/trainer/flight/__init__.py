"""Flight recorder: what each rank does, kept outside of it, and who is to blame when a run hangs or slows down.

docs/culprits.md describes what is recorded and where.
"""
