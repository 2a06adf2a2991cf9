"""The run page: a web server on loopback that shows runs, queues and nodes with the caller's permissions."""
