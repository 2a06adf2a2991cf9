"""Commands for a live stack: explain a run, check readiness, drain and resume queues."""
