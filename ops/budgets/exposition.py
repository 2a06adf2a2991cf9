"""Metrics of the ledger and the budgets, served to Prometheus by `cost enforce`.

The text is made after each look and handed out afterwards, so a scrape costs nothing and never sees half a look.
Names and labels are those of infra/observability/series.py.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from infra.observability import series
from infra.observability.series import Series
from ops.budgets.decision import Budget, Level, Override, Reading, used
from ops.cluster import ClusterError
from ops.ledger.model import Account, Amount, Book

PATH: Final = "/metrics"
TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OVERRIDDEN: Final = "overridden"
STATES: Final[Mapping[Level, str]] = {
    Level.NONE: "ok",
    Level.WARN: "warned",
    Level.HOLD: "held",
    Level.DRAIN: "drained",
}
"""Values of the label `state`, besides OVERRIDDEN."""
_CLIENT_S: Final = 10.0
"""How long a client may take to send its request."""

Sample = tuple[Series, Mapping[str, str], float]


@dataclass(frozen=True, kw_only=True)
class TeamState:
    """What was last decided about a team."""

    budget: Budget
    reading: Reading
    level: Level
    override: Override | None = None
    """The permission to spend more, while it holds."""
    decided: float | None = None
    """When a complete reading was last decided on, in Unix seconds; None: not since the start."""

    @property
    def state(self) -> str:
        """Return the value of the label `state`."""
        return OVERRIDDEN if self.override else STATES[self.level]


class Page:
    """The text that is served, from any thread."""

    def __init__(self) -> None:
        self._text = b""

    def put(self, text: str) -> None:
        """Replace the text."""
        self._text = text.encode()

    def get(self) -> bytes:
        """Return the text; empty before the first look."""
        return self._text


def text(book: Book, teams: Iterable[TeamState], recorded: float) -> str:
    """Return all metrics. `book`: of this month. `recorded`: when the record was written, in Unix seconds."""
    found: dict[Series, list[str]] = {}
    samples = [*_ledger(book), *(one for team in teams for one in _of_team(team))]
    for what, labels, value in (*samples, (series.COSTS_RECORDED, {}, recorded)):
        found.setdefault(what, []).append(f"{what.name}{_labels(labels)} {value!r}\n")
    return "".join(
        f"# HELP {one.name} {one.help}\n# TYPE {one.name} gauge\n{''.join(lines)}"
        for one, lines in found.items()
    )


def _ledger(book: Book) -> Iterator[Sample]:
    """Yield the month's amounts; an account's run, attempt and cause would make too many series."""
    sums: dict[tuple[str, ...], Amount] = {}
    for account, amount in book.items():
        sums.setdefault(_key(account), Amount()).merge(amount)
    for key, amount in sorted(sums.items()):
        labels = dict(zip(series.LEDGER_SECONDS.labels, key, strict=True))
        yield series.LEDGER_SECONDS, labels, amount.seconds
        yield series.LEDGER_USD, labels, amount.usd
        yield series.LEDGER_UNPRICED, labels, amount.unpriced


def _key(account: Account) -> tuple[str, ...]:
    return account.bucket.value, account.team, account.pool, account.purchase


def _of_team(one: TeamState) -> Iterator[Sample]:
    team = {"team": one.budget.team}
    for limit, value in (
        (series.BUDGET_USD, one.budget.usd_per_month),
        (series.BUDGET_GPU_HOURS, one.budget.gpu_hours_per_month),
        (series.BUDGET_OVERRIDE_END, one.override.until if one.override else None),
        (series.BUDGET_DECIDED, one.decided),
    ):
        if value is not None:
            yield limit, team, float(value)
    yield series.BUDGET_SPENT_USD, team, one.reading.usd
    yield series.BUDGET_SPENT_GPU_HOURS, team, one.reading.gpu_hours
    yield series.BUDGET_RATE, team, one.reading.usd_per_hour
    yield series.BUDGET_USED, team, used(one.budget, one.reading)
    for state in (*STATES.values(), OVERRIDDEN):
        yield series.BUDGET_STATE, team | {"state": state}, float(state == one.state)


def _labels(labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def serve(address: str, port: int, page: Page) -> ThreadingHTTPServer:
    """Serve a page at PATH in the background; the caller shuts the server down. Raises ClusterError."""

    class Handler(BaseHTTPRequestHandler):
        timeout = _CLIENT_S

        def do_GET(self) -> None:
            known = self.path == PATH
            body = page.get() if known else b"only /metrics is served\n"
            self.send_response(200 if known else 404)
            self.send_header("Content-Type", TYPE if known else "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def version_string(self) -> str:
            return "trainyard"

        def log_message(self, *_: object) -> None:
            """Write nothing: the log is for decisions."""

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in address else socket.AF_INET

    try:
        server = Server((address, port), Handler)
    except OSError as error:
        raise ClusterError(
            f"--metrics: {address}:{port}: cannot listen there: {error.strerror or error}"
        ) from None
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server
