"""Runs: the contract between a deployed job and the trainer inside it, and both sides of it."""
