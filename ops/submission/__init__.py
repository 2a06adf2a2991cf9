"""Submit, stop and continue runs with the rights of a member of a team."""
