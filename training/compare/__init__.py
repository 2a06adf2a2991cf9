"""Runs side by side: `python -m training.compare RUN_DIR RUN_DIR [...]`."""
