"""Sends what a run directory says to MLflow: `python -m training.tracking RUN_DIR --uri URI`.

The run directory is the truth and the queue: metrics.jsonl and events.jsonl are read, never written,
and what was sent is noted beside them. So a server that is away loses nothing, the next attempt of a
run goes on in the same MLflow run, and a finished run can be sent afterwards.
"""
