"""Time to answer of the run page's pages, over an API server that holds many runs.

A process serves recorded answers of an API server; `trainyard ui` runs unchanged in another; this one opens pages
one after the other, as a browser does, long enough that the page reads the runs again in between.
"""

from __future__ import annotations

import contextlib
import http.cookiejar
import json
import os
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import yaml

from bench.request import Request, Result
from infra.domain import naming
from ops import collect

SIZES: dict[str, dict[str, Any]] = {
    "small": {"runs": 200, "pages": 60},
    "full": {"runs": 1000, "pages": 400},
}
GOAL_MS: Final = 200.0
_PAUSE_S: Final = 0.05
"""Between two pages: a person is slower."""
_START_S: Final = 120.0
_RUNNING: Final = 0.2
"""Share of runs that run; a third of the rest waits, the others are finished."""

Json = dict[str, Any]


def run(request: Request) -> Result:
    """Measure; good if the 95th percentile is within the goal."""
    sizes, pick = request.sizes, random.Random(request.seed)
    items = fleet(sizes["runs"], pick)
    with (
        tempfile.TemporaryDirectory() as folder,
        _api_server(items) as port,
        _page(Path(folder), port) as address,
    ):
        started = time.monotonic()
        opener = _login(address)
        first = time.monotonic() - started
        root = "{0.scheme}://{0.netloc}".format(urlsplit(address))
        names = [one["metadata"]["name"] for one in items["jobsets"]]
        times: dict[str, list[float]] = {}
        for number in range(sizes["pages"]):
            request.notify("open pages", sizes["pages"], number)
            kind, path = _choose(pick, names)
            begun = time.monotonic()
            with opener.open(f"{root}{path}", timeout=_START_S) as answer:
                answer.read()
            times.setdefault(kind, []).append(1000 * (time.monotonic() - begun))
            time.sleep(_PAUSE_S)
    return _section(sizes["runs"], first, times)


def _choose(pick: random.Random, names: list[str]) -> tuple[str, str]:
    """Return the kind and the path of a page: mostly the list, and some runs again and again."""
    kind = pick.choice(["runs", "runs", "a run", "queues", "nodes"])
    if kind == "a run":
        return kind, f"/runs/{naming.namespace('research')}/{pick.choice(names[:10])}"
    states = pick.choice(["", "?state=queued", "?page=2", "?q=model"])
    return kind, {"runs": f"/{states}", "queues": "/queues", "nodes": "/nodes"}[kind]


def _section(runs: int, first: float, times: Mapping[str, list[float]]) -> Result:
    every = sorted(one for found in times.values() for one in found)
    whole = _percentile(every, 95)
    lines = [
        f"P13: the run page over {runs} runs. First page {1000 * first:.0f} ms. p95 of {len(every)} pages:"
        f" {whole:.0f} ms; goal {GOAL_MS:.0f} ms.",
        "",
        "| page | number | median ms | p95 ms | longest ms |",
        "|---|---|---|---|---|",
    ]
    for kind, found in sorted(times.items()):
        middle, slow = statistics.median(found), _percentile(sorted(found), 95)
        lines.append(f"| {kind} | {len(found)} | {middle:.0f} | {slow:.0f} | {max(found):.0f} |")
    return Result(text="\n".join(lines), good=whole <= GOAL_MS)


def _percentile(ordered: list[float], percent: int) -> float:
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def fleet(runs: int, pick: random.Random) -> dict[str, list[Json]]:
    """Return runs of one team by plural, with Workloads, pods and nodes; sizes as a cluster returns them."""
    items: dict[str, list[Json]] = {
        name: [] for name in ("jobsets", "workloads", "pods", "nodes", "clusterqueues")
    }
    namespace = naming.namespace("research")
    for number in range(runs):
        name = f"model-{number:04d}-v1-{pick.getrandbits(32):08x}"
        labels = {
            naming.RUN_ID: name,
            naming.RUN: f"model-{number:04d}",
            naming.RUN_VERSION: "1",
            naming.TEAM: "research",
            naming.QUEUE_NAME: "research",
        }
        meta = {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{number}",
            "creationTimestamp": f"2026-11-{1 + number % 20:02d}T10:00:00Z",
            "labels": labels,
            "annotations": {"recorded": "x" * 2000},
        }
        state = "running" if pick.random() < _RUNNING else pick.choice(["queued", "done", "done"])
        done = [_condition("Completed")] if state == "done" else []
        items["jobsets"].append({"metadata": meta, "spec": {}, "status": {"conditions": done}})
        admitted = [_condition("QuotaReserved"), _condition("Admitted")]
        waiting = [_condition("QuotaReserved", "False", "insufficient quota")]
        spec = {"containers": [{"name": "trainer", "resources": {"requests": {naming.GPU: "8"}}}]}
        owner = {"uid": f"uid-{number}", "name": name, "controller": True}
        workload_meta = meta | {"name": f"jobset-{name}", "uid": f"w-{number}"}
        items["workloads"].append(
            {
                "metadata": workload_meta | {"ownerReferences": [owner]},
                "spec": {
                    "queueName": "research",
                    "priority": 1000,
                    "podSets": [{"name": "worker", "count": 2, "template": {"spec": spec}}],
                },
                "status": {"conditions": waiting if state == "queued" else admitted},
            }
        )
        if state == "running":
            items["pods"] += [_pod(meta, spec, rank, number) for rank in (0, 1)]
    items["nodes"] = [_node(number) for number in range(max(1, runs // 5))]
    items["clusterqueues"] = [_queue()]
    return items


def _condition(kind: str, status: str = "True", message: str = "") -> Json:
    stamp = "2026-11-20T10:00:00Z"
    return {"type": kind, "status": status, "message": message, "lastTransitionTime": stamp}


def _pod(meta: Json, spec: Json, rank: int, number: int) -> Json:
    state = {"name": "trainer", "state": {"running": {}}, "restartCount": 0}
    return {
        "metadata": meta
        | {
            "name": f"{meta['name']}-{rank}",
            "uid": f"pod-{number}-{rank}",
            "labels": meta["labels"] | {naming.JOB_INDEX: str(rank)},
        },
        "spec": spec | {"nodeName": f"node-{number % 50}"},
        "status": {
            "phase": "Running",
            "conditions": [_condition("Ready"), _condition("PodScheduled")],
            "containerStatuses": [state],
        },
    }


def _node(number: int) -> Json:
    labels = {
        naming.POOL: "spot",
        naming.CAPACITY: "spot",
        naming.INSTANCE_TYPE: "p5.48xlarge",
        naming.ZONE: "us-east-1a",
    }
    return {
        "metadata": {
            "name": f"node-{number}",
            "uid": f"node-{number}",
            "labels": labels,
            "creationTimestamp": "2026-11-01T00:00:00Z",
        },
        "spec": {},
        "status": {
            "allocatable": {naming.GPU: "8", "cpu": "96"},
            "conditions": [_condition("Ready")],
        },
    }


def _queue() -> Json:
    resources = [{"name": naming.GPU, "nominalQuota": "1600"}]
    group = {
        "coveredResources": [naming.GPU],
        "flavors": [{"name": "spot", "resources": resources}],
    }
    return {
        "metadata": {"name": "team-research", "labels": {naming.TEAM: "research"}},
        "spec": {"cohortName": "trainyard", "resourceGroups": [group]},
        "status": {"conditions": [_condition("Active")]},
    }


@contextlib.contextmanager
def _api_server(items: Mapping[str, list[Json]]) -> Iterator[int]:
    """Serve lists, filtered by namespace and label, and a log of each pod."""
    log = "".join(
        f"2026-11-20T10:{n // 60:02d}:{n % 60:02d}Z step {n}/1000  loss 5.{n:03d}  12,000 tokens/s\n"
        for n in range(1, 200)
    )

    whole = {name: _list(found, {}) for name, found in items.items()}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            address = urlsplit(self.path)
            parts = address.path.strip("/").split("/")
            if parts[-1] == "log":
                self._answer(200, log.encode())
            elif parts[-1] in items or parts[-1] in _KNOWN:
                query = dict(parse_qsl(address.query))
                selects = "=" in query.get("labelSelector", "")
                found = items.get(parts[-1], [])
                self._answer(200, _list(found, query) if selects or not found else whole[parts[-1]])
            else:
                self._answer(404, b"{}")

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


_KNOWN: Final = {kind.plural for kind in collect.RUN_KINDS} | {
    *("events", "localqueues", "cohorts", "resourceflavors", "provisioningrequests"),
}


def _list(items: list[Json], query: Mapping[str, str]) -> bytes:
    terms = [t.partition("=") for t in query.get("labelSelector", "").split(",") if "=" in t]
    found = [
        one
        for one in items
        if all(one["metadata"].get("labels", {}).get(k) == v for k, _, v in terms)
    ]
    return json.dumps({"items": found}).encode()


@contextlib.contextmanager
def _page(folder: Path, port: int) -> Iterator[str]:
    """Run `trainyard ui`; yield the address that it prints."""
    kubeconfig = folder / "kubeconfig"
    one = {"cluster": {"server": f"http://127.0.0.1:{port}"}, "name": "bench"}
    context = {"context": {"cluster": "bench", "user": "bench"}, "name": "bench"}
    kubeconfig.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [one],
                "contexts": [context],
                "users": [{"name": "bench", "user": {}}],
                "current-context": "bench",
            }
        )
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = free.getsockname()[1]
    command = [sys.executable, "-u", "-m", "ops", "ui", "--port", "0"]
    command += ["--kubeconfig", str(kubeconfig), "--prometheus", f"http://127.0.0.1:{nobody}"]
    environment = {k: v for k, v in os.environ.items() if k != "KUBECONFIG"}
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    ) as process:
        try:
            yield _address(process)
        finally:
            process.terminate()
            process.wait(_START_S)


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    said = ""
    timer = threading.Timer(_START_S, process.kill)
    timer.start()
    try:
        for line in process.stdout:
            said += line
            if found := re.match(r"http://\S+/login\?key=\S+", line):
                return found[0]
    finally:
        timer.cancel()
    raise TimeoutError(f"trainyard ui printed no address: {said[-2000:]}")


def _login(address: str) -> urllib.request.OpenerDirector:
    """Return a client with the session's cookie, which has opened the first page."""
    jar = http.cookiejar.CookieJar()
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(jar)
    )
    with opener.open(address, timeout=_START_S) as answer:
        answer.read()
    return opener
