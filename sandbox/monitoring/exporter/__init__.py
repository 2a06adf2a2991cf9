"""Stands in for dcgm-exporter on simulated nodes, and for whoever ships logs.

`gpus.py` says which GPUs there are and which pods hold them, `usage.py` what pods really do,
`readings.py` what a GPU under that load would show, `text_format.py` writes it as dcgm-exporter 4.8 does;
`log_counts.py` counts what lines of runs' logs tell; `server.py` answers Prometheus.
"""
