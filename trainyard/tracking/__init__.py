"""Send the metrics of a run directory to an MLflow tracking server; standard library only."""
