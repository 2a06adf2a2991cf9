"""Teams: a namespace each, with its limits, roles, policies, queue and volumes."""
