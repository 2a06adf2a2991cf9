"""What a run measures, and where it reports it: run files, terminal, Prometheus, MLflow."""
