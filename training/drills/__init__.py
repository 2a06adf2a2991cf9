"""Restore drills: the newest checkpoints of a team's runs, restored elsewhere and compared."""
