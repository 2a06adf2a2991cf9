"""Adapters of training frameworks to the runtime; each module imports its framework."""
