"""Send a run directory to an MLflow tracking server: `python -m trainyard.tracking RUN_DIR --uri URI`.

metrics.jsonl and events.jsonl are the queue: they are only read, and a cursor file next to them
records what was sent. An unreachable server loses nothing, later attempts continue the same MLflow
run, and a finished run can be sent afterwards. Standard library only.
"""
