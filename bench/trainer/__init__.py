"""Benchmarks of programs and of the trainer, without a cluster."""
