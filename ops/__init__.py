"""Commands on a live stack of any kind: why a run waits, drain its queues, resume them."""
