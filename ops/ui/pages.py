"""HTML of the pages. Templates escape all values; texts of the cluster are never markup."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

import jinja2
from starlette.responses import PlainTextResponse, Response

from ops import objects
from ops.runs import states
from ops.runs.columns import COLUMNS, NONE, Row
from ops.runs.listing import RunSummary
from ops.snapshot import format_duration
from ops.ui.overview import Overview
from ops.ui.source import COMPARED_MAX, Source

PER_PAGE: Final = 100
"""Runs of one page."""
PATHS: Final = ("/", "/runs/{namespace}/{run_id}", "/compare", "/queues", "/nodes")
Pairs = Sequence[tuple[str, str]]

_TITLES: Final = {"/": "Runs", "/queues": "Queues", "/nodes": "Nodes", "/compare": "Compare runs"}
_RUN: Final = re.compile(r"/runs/([a-z0-9-]{1,63})/([a-z0-9.-]{1,253})")
_MAIN: Final = re.compile(r"<main[^>]*>(.*)</main>", re.DOTALL)
_TIMES: Final = re.compile(r"<time[^>]*>[^<]*</time>")


class PageError(Exception):
    """The address is not of a page; the text says what is expected."""

    status: Final = 404


def duration(seconds: float | None) -> str:
    """Return `1 h 5 min`, `3 min 20 s`, `8 s`; `-` if unknown."""
    if seconds is None:
        return "-"
    whole = max(0, round(seconds))
    for name, size, small, unit in (
        ("d", 86_400, "h", 3_600),
        ("h", 3_600, "min", 60),
        ("min", 60, "s", 1),
    ):
        if whole >= size:
            rest = whole % size // unit
            return f"{whole // size} {name}" + (f" {rest} {small}" if rest else "")
    return f"{whole} s"


def _usd(value: float | None) -> str:
    if value is None:
        return "-"
    return f"${value:,.2f}" if value >= 0.01 or value == 0 else "< $0.01"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.3g} %"


def _clock(time: float | None) -> str:
    return "" if time is None else f"{dt.datetime.fromtimestamp(time, dt.UTC):%Y-%m-%d %H:%M:%S}"


def _age(stamp: str, now: dt.datetime) -> str:
    then = objects.time(stamp)
    return format_duration((now - then).total_seconds()) if then else "-"


_FILTERS: Final[Mapping[str, Callable[..., str]]] = {
    "duration": duration,
    "usd": _usd,
    "percent": _percent,
    "clock": _clock,
    "age": _age,
    "segment": lambda text: quote(str(text), safe=""),
}


def _environment() -> jinja2.Environment:
    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(_FILTERS)
    return found


_TEMPLATES: Final = _environment()


def render(source: Source, path: str, query: Mapping[str, str], pairs: Pairs) -> str:
    """Return a page. Raises PageError, ClusterError, NoSuchRunError."""
    if path == "/":
        return _runs(source, query)
    if path == "/queues":
        return _page("queues.html", path, overview=source.overview())
    if path == "/nodes":
        return _page("nodes.html", path, overview=source.overview())
    if path == "/compare":
        return _compare(source, pairs)
    named = _RUN.fullmatch(path)
    if named is None:
        raise PageError(f"{path[:100]}: page not found; the pages are Runs, Queues and Nodes")
    return _run(source, named[1], named[2])


def _page(template: str, path: str, **values: Any) -> str:
    title = values.pop("title", _TITLES.get(path, "Run"))
    return _TEMPLATES.get_template(template).render(path=path, title=title, **values)


def _runs(source: Source, query: Mapping[str, str]) -> str:
    overview = source.overview()
    state, text = query.get("state", ""), query.get("q", "").strip()
    if state and state not in states.STATES:
        raise PageError(f"state: got {state[:40]!r}; expected {', '.join(states.STATES)}")
    found = [
        one
        for one in overview.listing.runs
        if (not state or one.state == state) and text.lower() in f"{one.run_id} {one.team}".lower()
    ]
    wanted = query.get("page", "1")
    last = max(1, -(-len(found) // PER_PAGE))
    page = min(int(wanted), last) if wanted.isdecimal() and int(wanted) else 1

    def link(number: int) -> str:
        return "/?" + urlencode({"state": state, "q": text, "page": number})

    return _page(
        "runs.html",
        "/",
        overview=overview,
        columns=COLUMNS,
        rows=[
            Row(one=one, now=overview.now, cost=_cost(one, overview))
            for one in found[(page - 1) * PER_PAGE : page * PER_PAGE]
        ],
        number=len(found),
        counts={
            name: sum(one.state == name for one in overview.listing.runs) for name in states.STATES
        },
        states=states.STATES,
        state=state,
        q=text,
        page=page,
        last=last,
        link=link,
    )


def _cost(one: RunSummary, overview: Overview) -> str:
    spent = overview.spent.get(one.run_id)
    if spent is None:
        return NONE
    return f"{'≥ ' if one.attempt > 1 else ''}{_usd(spent.usd)}"


def _run(source: Source, namespace: str, run_id: str) -> str:
    view = source.run(namespace, run_id)
    path = f"/runs/{namespace}/{run_id}"
    return _page("run.html", path, title=run_id, view=view, one=view.details.summary)


def named_runs(pairs: Pairs) -> list[tuple[str, str]]:
    """Return namespace and run id of each `run=NAMESPACE/ID`, each once."""
    found = [
        (namespace, run_id)
        for name, value in pairs
        if name == "run"
        for namespace, slash, run_id in [value.partition("/")]
        if slash and _RUN.fullmatch(f"/runs/{namespace}/{run_id}")
    ]
    return list(dict.fromkeys(found))


def _compare(source: Source, pairs: Pairs) -> str:
    wanted = named_runs(pairs)
    if len(wanted) > COMPARED_MAX:
        raise PageError(f"run: got {len(wanted)} runs; 2 to {COMPARED_MAX} can be compared")
    found = source.compare(wanted) if len(wanted) > 1 else None
    return _page("compare.html", "/compare", wanted=wanted, found=found)


def error_html(path: str, text: str) -> str:
    return _page("error.html", path, title="Not available", text=text)


def error_page(status: int, text: str) -> Response:
    return Response(error_html("", text), status, media_type="text/html")


def plain_error(status: int, text: str) -> Response:
    """Return a refusal that shows nothing of the cluster."""
    return PlainTextResponse(f"error: {text}\n", status)


def main_of(html: str) -> str:
    """Return the inner HTML of a page's `main`."""
    found = _MAIN.search(html)
    return found[1] if found else ""


def without_times(html: str) -> str:
    """Return HTML without ages, which change all the time."""
    return _TIMES.sub("", html)
