"""Sweeps: submit the runs of a family, stop the worse ones, show the result."""
