"""Simulated node pools and storage of the local stack."""
