"""Checks of nodes, run on the nodes themselves: GPUs compute, ranks meet, the network carries collectives."""
