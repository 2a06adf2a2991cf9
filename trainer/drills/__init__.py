"""Restore drills: restore the newest checkpoints of a team's runs and compare them."""
