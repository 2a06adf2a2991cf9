"""Benchmarks: what is claimed about speed and about queues under load, measured on the embedded cluster."""
