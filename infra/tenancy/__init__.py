"""Teams: a namespace each, with its limits, roles, walls, queue and volumes."""
