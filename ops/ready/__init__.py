"""`python -m ops ready`: climbs from capacity to preemption on a live stack, and stops where it fails."""
