"""Watch nodes and pods and serve Prometheus."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from infra.domain import naming
from infra.observability import dcgm
from sandbox import paths
from sandbox.monitoring.exporter import gpus, readings, text_format, usage
from sandbox.monitoring.exporter.gpus import Gpu, Holder
from sandbox.monitoring.exporter.log_counts import LogCounts, LoggedPod
from sandbox.monitoring.exporter.readings import Load
from sandbox.node.api import Client, Json
from sandbox.node.records import pod_folder
from sandbox.node.watch import Informer
from sandbox.ports import LOOPBACK

WINDOW_S: Final = 1.0
"""Shortest interval over which a load is measured."""


@dataclass
class _Measured:
    at: float
    used: usage.Usage
    load: Load


class Exporter:
    def __init__(self, state: paths.State, client: Client) -> None:
        self._state = state
        self._lock = threading.Lock()
        self._assignment = gpus.Assignment()
        self._measured: dict[str, _Measured] = {}
        self._energy_mj: dict[Gpu, float] = {}
        self._scraped = time.monotonic()
        self._logs = LogCounts(time.time())
        self._nodes = Informer(client, "/api/v1/nodes")
        self._pods = Informer(client, "/api/v1/pods")

    def start(self) -> None:
        """Start the watches; return once the existing objects are listed."""
        for watch in (self._nodes, self._pods):
            watch.start()
        for watch in (self._nodes, self._pods):
            watch.synced.wait()

    def gpu_text(self) -> str:
        """Return every GPU's metrics as dcgm-exporter writes them."""
        with self._lock:
            now = time.monotonic()
            pods = self._pods.items()
            found = {one["metadata"]["name"]: gpus.node_gpus(one) for one in self._nodes.items()}
            held = self._assignment.update(found, gpus.gpu_holders(pods))
            loads = self._loads(held, {p["metadata"]["uid"]: p for p in pods}, now)
            passed, self._scraped = now - self._scraped, now
            samples: dict[dcgm.Field, list[text_format.Sample]] = {f: [] for f in dcgm.FIELDS}
            for gpu in (gpu for on_node in found.values() for gpu in on_node):
                holder = held.get(gpu)
                load = loads[holder.uid] if holder else Load()
                energy = self._energy_mj.get(gpu, 0.0) + 1000 * passed * readings.power_w(load)
                self._energy_mj[gpu] = energy
                labels = gpu.labels | (holder.labels if holder else {})
                for one, value in readings.gpu_fields(gpu.memory_mib, load, energy).items():
                    samples[one].append((labels, value))
            return "".join(
                text_format.metric_family(f.name, f.kind, f.help, samples[f]) for f in samples
            )

    def _loads(self, held: dict[Gpu, Holder], pods: dict[str, Json], now: float) -> dict[str, Load]:
        known = usage.processes() if held else {}
        memory = {holder.uid: gpu.memory_mib for gpu, holder in held.items()}
        found = {}
        for holder in set(held.values()):
            folder = pod_folder(self._state, pods[holder.uid])
            used = usage.pod_usage(folder, known)
            if used is None:
                pretended = readings.SIMULATED_MEMORY * memory[holder.uid]
                steady = Load(busy=readings.SIMULATED_LOAD, memory_mib=pretended)
                found[holder.uid] = Load() if folder.path.exists() else steady
            else:
                found[holder.uid] = self._measure(holder, used, now)
        self._measured = {uid: one for uid, one in self._measured.items() if uid in found}
        return found

    def _measure(self, holder: Holder, used: usage.Usage, now: float) -> Load:
        before = self._measured.get(holder.uid)
        if before and now - before.at < WINDOW_S:
            return before.load
        busy = (
            usage.gpu_utilization(before.used, used, now - before.at, holder.gpus)
            if before
            else 0.0
        )
        load = Load(busy=busy, memory_mib=used.memory_bytes / 2**20 / holder.gpus)
        self._measured[holder.uid] = _Measured(now, used, load)
        return load

    def log_text(self) -> str:
        with self._lock:
            pods = [p for p in self._pods.items() if _run_id(p)]
            created = {p["metadata"]["uid"]: _created(p) for p in pods}
            self._logs.update([self._logged(p) for p in pods], created, time.time())
            return self._logs.text()

    def _logged(self, pod: Json) -> LoggedPod:
        metadata = pod["metadata"]
        return LoggedPod(
            uid=metadata["uid"],
            namespace=metadata["namespace"],
            pod=metadata["name"],
            run_id=_run_id(pod),
            folder=pod_folder(self._state, pod).logs,
        )


def _run_id(pod: Json) -> str:
    return str((pod["metadata"].get("labels") or {}).get(naming.RUN_ID, ""))


def _created(pod: Json) -> float:
    return datetime.fromisoformat(pod["metadata"]["creationTimestamp"]).timestamp()


def serve(exporter: Exporter, port: int) -> ThreadingHTTPServer:
    pages: dict[str, Callable[[], str]] = {
        "/metrics": exporter.gpu_text,
        "/logs": exporter.log_text,
        "/healthz": lambda: "ok\n",
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = pages.get(self.path)
            body = found().encode() if found else b"not found\n"
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", text_format.CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: Any) -> None:
            """Log nothing: Prometheus scrapes every few seconds."""

    return ThreadingHTTPServer((LOOPBACK, port), Handler)
