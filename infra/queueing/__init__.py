"""Queues, quotas and priorities, for each scheduler."""
