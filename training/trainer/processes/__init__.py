"""The processes of a node: fork server, elastic agent, exit codes, and notices to stop."""
