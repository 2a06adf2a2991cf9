"""Send a run directory to MLflow: `python -m training.tracking RUN_DIR --uri URI`; see trainyard/tracking.

Besides tracking servers it knows sqlite files, which MLflow's package writes.
"""
