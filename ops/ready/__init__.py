"""`trainyard stack ready`: readiness check in stages, from capacity to production."""
