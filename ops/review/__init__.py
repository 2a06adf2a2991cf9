"""What a change of a stack does: money, quotas, data and runs, from the engine's preview."""
