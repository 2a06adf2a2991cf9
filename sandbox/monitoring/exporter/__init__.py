"""Simulated dcgm-exporter and log shipper for simulated nodes.

`gpus.py` assigns GPUs to pods, `usage.py` measures the pods' processes, `readings.py` derives GPU metrics,
`text_format.py` renders them as dcgm-exporter 4.8 does; `log_counts.py` counts log patterns of runs;
`server.py` serves Prometheus.
"""
