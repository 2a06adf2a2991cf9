"""Trainyard's runtime for training programs.

Standard library only; outside a run everything works without effect on the program.
"""
