"""Benchmarks of the trainer, and of the queues under load in the sandbox."""
