"""Checks of nodes that run in the cluster."""
