"""Where a run answers Prometheus: the platform's word, which is in the environment, before the configuration's."""

from __future__ import annotations

import os
import socket

from training import spec
from training.trainer.config import ReportConfig


def port(report: ReportConfig) -> int | None:
    """None: nowhere."""
    told = os.environ.get(spec.METRICS_PORT_ENV)
    return int(told) if told else report.prometheus_port


def address(report: ReportConfig) -> str:
    """What to listen on. Raises OSError where the host's own name has no address."""
    if spec.METRICS_PORT_ENV not in os.environ:
        return report.prometheus_address
    told = os.environ.get(spec.METRICS_ADDRESS_ENV)
    return told or socket.gethostbyname(socket.gethostname())
