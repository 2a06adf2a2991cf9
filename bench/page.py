"""P13: time to answer of the run page's pages, opened one after the other as a browser does.

Slowly enough that the page reads the runs again in between.
"""

from __future__ import annotations

import contextlib
import http.cookiejar
import random
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Final
from urllib.parse import urlsplit

from bench import statistics

GOAL_MS: Final = 200.0
_PAUSE_S: Final = 0.05
"""Between two pages: a person is slower."""
_START_S: Final = 120.0


def open_pages(
    kubeconfig: str, runs: Sequence[str], pages: int, pick: random.Random
) -> dict[str, list[float]]:
    """Return milliseconds of each page, by kind; `runs`: paths `NAMESPACE/RUN` of runs that are opened."""
    times: dict[str, list[float]] = {}
    with _page(kubeconfig) as address:
        opener = _login(address)
        root = "{0.scheme}://{0.netloc}".format(urlsplit(address))
        for _ in range(pages):
            kind, path = _choose(pick, runs)
            begun = time.monotonic()
            with opener.open(f"{root}{path}", timeout=_START_S) as answer:
                answer.read()
            times.setdefault(kind, []).append(1000 * (time.monotonic() - begun))
            time.sleep(_PAUSE_S)
    return times


def _choose(pick: random.Random, runs: Sequence[str]) -> tuple[str, str]:
    """Return the kind and the path of a page: mostly the list, and some runs again and again."""
    kind = pick.choice(["runs", "runs", "a run", "queues", "nodes"])
    if kind == "a run":
        return kind, f"/runs/{pick.choice(runs[:10])}"
    states = pick.choice(["", "?state=queued", "?page=2", "?q=model"])
    return kind, {"runs": f"/{states}", "queues": "/queues", "nodes": "/nodes"}[kind]


def p95(times: Mapping[str, Sequence[float]]) -> float:
    """Return the 95th percentile over pages of all kinds."""
    return statistics.p95([one for found in times.values() for one in found])


def table(times: Mapping[str, Sequence[float]]) -> list[str]:
    """Return the Markdown table by kind of page, and the verdict."""
    lines = [
        "| page | number | median ms | p95 ms | longest ms |",
        "|---|---|---|---|---|",
    ]
    for kind, found in sorted(times.items()):
        middle, slow = median(found), statistics.p95(found)
        lines.append(f"| {kind} | {len(found)} | {middle:.0f} | {slow:.0f} | {max(found):.0f} |")
    whole = p95(times)
    verdict = "met" if whole <= GOAL_MS else "not met"
    return [
        *lines,
        "",
        f"p95 of all pages: {whole:.0f} ms; goal {GOAL_MS:.0f} ms: {verdict}.",
    ]


@contextlib.contextmanager
def _page(kubeconfig: str) -> Iterator[str]:
    """Run `trainyard ui`; yield the address that it prints."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = free.getsockname()[1]
    command = [sys.executable, "-u", "-m", "ops", "ui", "--port", "0"]
    command += ["--kubeconfig", kubeconfig, "--prometheus", f"http://127.0.0.1:{nobody}"]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
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
