"""Prometheus endpoint of the leader: GET /metrics.

A scrape reads the StepMeter's totals and costs training nothing. Times are counters of seconds, so
that `rate(trainyard_loader_seconds_total[5m]) / rate(trainyard_step_seconds_total[5m])` is the
fraction of time that steps waited for data.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIServer

import prometheus_client
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from training.trainer.metrics.step_metrics import Totals

_COUNTERS = {
    "steps": "Optimizer steps done by this attempt",
    "tokens": "Tokens predicted by this attempt, over all ranks",
    "samples": "Samples used by this attempt, over all ranks",
    "step_seconds": "Time in steps, including waiting for data",
    "loader_seconds": "Time that steps waited for their samples",
    "collective_seconds": "Time that steps waited for other ranks in the final all-reduce",
    "checkpoint_stall_seconds": "Time that training was stalled by checkpoint saves",
}
_GAUGES = {
    "step": "Newest step",
    "loss_nats": "Training loss of the newest step, per token",
    "learning_rate": "Of the newest step",
    "gradient_norm": "2-norm of the gradients of the newest step before clipping",
    "tokens_per_second": "Of the newest step, over all ranks",
    "samples_per_second": "Of the newest step, over all ranks",
    "model_flops_utilization_ratio": "Part of the devices' dense bf16 peak",
}


class RunCollector(Collector):
    """Collector of one attempt's metrics."""

    def __init__(
        self, totals: Totals, labels: Mapping[str, str], *, folder: Path, attempt: int, steps: int
    ):
        """`folder` is the run directory, whose volume is measured."""
        self._totals = totals
        self._folder = folder
        self._labels = dict(labels)
        self._event_gauges: dict[str, float] = {"attempt": attempt, "planned_steps": steps}
        """Gauges that change with events only."""
        self._events: dict[str, int] = {}
        self._measure_volume()

    def _measure_volume(self) -> None:
        """Measure the volume here: FSx for Lustre reports nothing to the kubelet, and statfs may hang."""
        try:
            usage = shutil.disk_usage(self._folder)
        except OSError:
            return
        self._event_gauges["volume_size_bytes"] = usage.total
        self._event_gauges["volume_free_bytes"] = usage.free

    def observe(self, entry: Mapping[str, Any]) -> None:
        """Update gauges and event counters from an event."""
        name = str(entry["event"])
        self._events[name] = self._events.get(name, 0) + 1
        if name == "evaluated":
            self._event_gauges["evaluation_loss_nats"] = entry["loss"]
        elif name == "checkpoint_commit":
            self._event_gauges["checkpoint_step"] = entry["step"]
            self._event_gauges["checkpoint_write_seconds"] = entry["seconds"]
            self._event_gauges["checkpoint_size_bytes"] = entry["bytes"]
            self._event_gauges["checkpoint_commit_timestamp_seconds"] = entry["time"]
            self._measure_volume()

    def collect(self) -> Iterator[Metric]:
        """Yield all metric families; the newest step is read once, for a consistent set."""
        totals, last = self._totals, self._totals.last
        counted = (
            totals.steps,
            totals.tokens,
            totals.samples,
            totals.step_time_s,
            totals.loader_time_s,
            totals.collective_time_s,
            totals.checkpoint_stall_s,
        )
        for (name, text), value in zip(_COUNTERS.items(), counted, strict=True):
            yield self._counter(name, text, value)
        if last:
            newest = (
                last.step,
                last.loss,
                last.lr,
                last.grad_norm,
                last.tokens_per_s,
                last.samples_per_s,
                last.mfu,
            )
            for (name, text), number in zip(_GAUGES.items(), newest, strict=True):
                if number is not None:
                    yield self._gauge(name, text, number)
        for name, value in list(self._event_gauges.items()):
            yield self._gauge(name, "Value from the newest event that reports it", value)
        events = CounterMetricFamily(
            "trainyard_events", "Events of this attempt", labels=[*self._labels, "event"]
        )
        for name, count in list(self._events.items()):
            events.add_metric([*self._labels.values(), name], count)
        yield events

    def _counter(self, name: str, text: str, value: float) -> Metric:
        family = CounterMetricFamily(f"trainyard_{name}", text, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(f"trainyard_{name}", text, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family


def start_server(collector: RunCollector, address: str, port: int) -> Callable[[], None]:
    """Serve scrapes in a thread; return a function that stops it. Raises OSError."""
    registry = CollectorRegistry()
    registry.register(collector)
    server: WSGIServer
    thread: threading.Thread
    server, thread = prometheus_client.start_http_server(port, address, registry)

    def close() -> None:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5.0)

    return close
