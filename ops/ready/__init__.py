"""`trainyard stack ready`: readiness check in stages, from capacity to preemption, and a checklist."""
