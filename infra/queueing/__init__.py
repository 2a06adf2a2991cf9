"""Queues, quotas and priorities of each scheduler."""
