"""Prometheus endpoint of the leader: GET /metrics, and GET /culprits for the ranks that were named.

The latter is small enough to be scraped every two seconds, so that an alert comes at once.
A scrape reads the run's totals and costs training nothing. Times are counters of seconds, so
that `rate(trainyard_loader_seconds_total[5m]) / rate(trainyard_step_seconds_total[5m])` is the
fraction of time that steps waited for data.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from trainyard.contract import EVENTS_FILE, STEP_ALLOWANCE_S
from trainyard.culprits import Culprit
from trainyard.run_logs import Totals, entries_from_end

CULPRITS_PATH: Final = "/culprits"
_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_COUNTERS: Final = {
    "steps": ("steps", "Optimizer steps done by this attempt"),
    "tokens": ("tokens", "Tokens predicted by this attempt, over all ranks"),
    "samples": ("samples", "Samples used by this attempt, over all ranks"),
    "step_seconds": ("step_time_s", "Time in steps, including waiting for data"),
    "loader_seconds": ("loader_time_s", "Time that steps waited for their samples"),
    "collective_seconds": (
        "collective_time_s",
        "Time that steps waited for other ranks in the final all-reduce",
    ),
    "checkpoint_stall_seconds": (
        "checkpoint_stall_s",
        "Time that training was stalled by checkpoint saves",
    ),
}
"""Field of the totals and help by name of the series."""
_GAUGES: Final = {
    "step": ("step", "Newest step"),
    "loss_nats": ("loss", "Training loss of the newest step, per token"),
    "learning_rate": ("lr", "Of the newest step"),
    "gradient_norm": ("grad_norm", "2-norm of the gradients of the newest step before clipping"),
    "tokens_per_second": ("tokens_per_s", "Of the newest step, over all ranks"),
    "samples_per_second": ("samples_per_s", "Of the newest step, over all ranks"),
    "model_flops_utilization_ratio": ("mfu", "Part of the devices' dense bf16 peak"),
}
"""The same of the newest step."""
_CULPRITS_MAX: Final = 32
"""Ranks that are exported as culprits, the last ones named: Prometheus limits the samples of a run."""


class RunCollector:
    def __init__(
        self,
        totals: Totals,
        labels: Mapping[str, str],
        *,
        folder: Path,
        attempt: int,
        steps: int | None,
        groups: int = 0,
        record: Mapping[str, Any] | None = None,
    ):
        """`folder` is the run directory, whose volume is measured; `steps`: those planned, if known.

        `groups`: replica groups that the run may have; 0: it is not elastic. `record`: the run's origin
        (run.json), for the time that a save may take; None or empty: unknown.
        """
        self._totals = totals
        self._folder = folder
        self._labels = dict(labels)
        self._event_gauges: dict[str, float] = {"attempt": attempt}
        """Gauges that change with events only."""
        if steps is not None:
            self._event_gauges["planned_steps"] = steps
        if groups:
            self._event_gauges["planned_groups"] = groups
        else:
            self._count_resumes()
        grace = (record or {}).get("grace")
        if isinstance(grace, dict) and "checkpoint_deadline_s" in grace:
            self._event_gauges["save_seconds"] = grace["checkpoint_deadline_s"] - STEP_ALLOWANCE_S
        self._events: dict[str, int] = {}
        self._culprits: dict[tuple[str, int, str], Culprit] = {}
        self._measure_volume()

    def _count_resumes(self) -> None:
        """Count the attempts after a save of an earlier one, and those of them that loaded a checkpoint."""
        saved, resumed = set[int](), set[int]()
        with contextlib.suppress(OSError):
            for entry in entries_from_end(self._folder / EVENTS_FILE):
                attempts = {"checkpoint_commit": saved, "resumed": resumed}.get(
                    str(entry.get("event"))
                )
                if attempts is not None:
                    attempts.add(int(entry["attempt"]))
        this = int(self._event_gauges["attempt"])
        due = range(min(saved, default=this) + 1, this + 1)
        # `observe` adds this attempt.
        self._resumed_before = len(resumed.intersection(due[:-1]))
        self._event_gauges["resumes_due"] = len(due)
        self._event_gauges["resumes_done"] = self._resumed_before

    def _measure_volume(self) -> None:
        """Measure the volume here: FSx for Lustre reports nothing to the kubelet, and statfs may hang."""
        try:
            usage = shutil.disk_usage(self._folder)
        except OSError:
            return
        self._event_gauges["volume_size_bytes"] = usage.total
        self._event_gauges["volume_free_bytes"] = usage.free

    def observe(self, entry: Mapping[str, Any]) -> None:
        name = str(entry["event"])
        self._events[name] = self._events.get(name, 0) + 1
        if "sync_s" in entry:
            self._event_gauges["volume_sync_seconds"] = entry["sync_s"]
        if name == "started":
            self._event_gauges["restarts_in_pod"] = entry.get("restarts_in_pod", 0)
        elif name == "resumed" and self._event_gauges.get("resumes_due"):
            self._event_gauges["resumes_done"] = self._resumed_before + 1
        elif name == "evaluated":
            self._event_gauges["evaluation_loss_nats"] = entry["loss"]
        elif name == "membership":
            self._event_gauges["groups"] = entry["groups"]
        elif name == "checkpoint_commit":
            self._event_gauges["checkpoint_step"] = entry["step"]
            self._event_gauges["checkpoint_write_seconds"] = entry["seconds"]
            self._event_gauges["checkpoint_size_bytes"] = entry["bytes"]
            self._event_gauges["checkpoint_commit_timestamp_seconds"] = entry["time"]
            self._measure_volume()

    def add_culprit(self, culprit: Culprit) -> None:
        """Export that a rank was named, or named again."""
        self._culprits.pop(culprit.key, None)
        self._culprits[culprit.key] = culprit
        if len(self._culprits) > _CULPRITS_MAX:
            del self._culprits[next(iter(self._culprits))]

    def text(self) -> str:
        """Return all series but those of culprits in Prometheus' text format.

        The newest step is read once, to be consistent.
        """
        return "".join(f"{line}\n" for line in self._lines())

    def culprits_text(self) -> str:
        """Return when each rank that was named was named last, in Prometheus' text format."""
        named = [(_labels_of(one), one.time) for one in list(self._culprits.values())]
        lines = self._family("culprit_timestamp_seconds", _CULPRIT_HELP, "gauge", named)
        return "".join(f"{line}\n" for line in lines)

    def _lines(self) -> Iterator[str]:
        last = self._totals.last
        for name, (field, text) in _COUNTERS.items():
            total = getattr(self._totals, field)
            yield from self._family(f"{name}_total", text, "counter", [({}, total)])
        for name, (field, text) in _GAUGES.items():
            if (value := getattr(last, field, None)) is not None:
                yield from self._family(name, text, "gauge", [({}, value)])
        for name, value in list(self._event_gauges.items()):
            text = "Value from the newest event that reports it"
            yield from self._family(name, text, "gauge", [({}, value)])
        events = [({"event": name}, count) for name, count in list(self._events.items())]
        yield from self._family("events_total", "Events of this attempt", "counter", events)

    def _family(
        self,
        name: str,
        text: str,
        kind: str,
        samples: Sequence[tuple[Mapping[str, str], float]],
    ) -> Iterator[str]:
        yield f"# HELP trainyard_{name} {text}"
        yield f"# TYPE trainyard_{name} {kind}"
        for labels, value in samples:
            pairs = {**self._labels, **labels}.items()
            inner = ",".join(f'{key}="{_escape(label)}"' for key, label in pairs)
            yield f"trainyard_{name}{{{inner}}} {_number(value)}"


_CULPRIT_HELP: Final = "When a rank was last named as the cause of trouble, in Unix seconds"


def _labels_of(culprit: Culprit) -> dict[str, str]:
    # Not `node` and `pod`: these are the labels of the pod that is scraped.
    return {
        "symptom": culprit.symptom,
        "culprit_rank": str(culprit.rank),
        "culprit_node": culprit.node,
        "culprit_pod": culprit.pod,
    }


def _escape(label: str) -> str:
    return label.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value))


def start_server(collector: RunCollector, address: str, port: int) -> Callable[[], None]:
    """Serve scrapes in a thread; return a function that stops it. Raises OSError."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 10.0  # seconds; a client that sends nothing must not hold a thread

        def do_GET(self) -> None:
            named = self.path == CULPRITS_PATH
            body = (collector.culprits_text() if named else collector.text()).encode()
            self.send_response(200)
            self.send_header("Content-Type", _CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing: the output is the program's."""

    server = ThreadingHTTPServer((address, port), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()

    def close() -> None:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5.0)

    return close
