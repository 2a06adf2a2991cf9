"""Atomic, checksummed checkpoints of arbitrary files in a folder; see `interface`."""
