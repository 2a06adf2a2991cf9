"""Runs of a stack: list, show, follow and compare them."""
