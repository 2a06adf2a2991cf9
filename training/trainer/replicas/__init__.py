"""Replicas of the model that must be the same in every bit: compared, and settled where they are not."""
