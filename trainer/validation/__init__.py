"""Checks that run on nodes: GPU compute, rendezvous, collectives and a short training."""
