"""The web server of the run page: read-only, on loopback, for one user or behind a proxy that signs users in.

Every page works without scripts; scripts add live updates, charts and logs. `main` of a page is rendered again for
its event stream, and sent when it differs.
"""

from __future__ import annotations

import asyncio
import contextlib
import html
import json
import math
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ops.cluster import ClusterError, ForbiddenError, UnknownCallerError, UnreachableError
from ops.collect import NoSuchRunError
from ops.logs import printable
from ops.ui import pages
from ops.ui.pages import PageError
from ops.ui.source import COMPARED_MAX, Source
from ops.ui.users import UnknownUserError

POLL_S: Final = 2.0
"""Between renderings of an open page."""
LOG_POLL_S: Final = 1.0
SHARED_STREAM_S: Final = 600.0
"""Seconds after which a stream ends where users sign in, so that the proxy checks the session again."""
HEALTH: Final = "/healthz"
"""Answered without a user; it shows nothing."""
LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
"""Hosts that a request may name: others reach loopback by DNS rebinding."""
_STATIC: Final = Path(__file__).parent / "static"
_HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
_ICON: Final = '<link rel="icon" href="/static/icon.svg">'
_TO_LOGIN: Final = (
    "this page belongs to the user who started it; open the address that `trainyard ui` printed"
)

Handler = Callable[[Request], Awaitable[Response]]


class ReadOnly:
    """Admits requests with the method GET, and adds the headers of all answers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [(k.encode(), v.encode()) for k, v in _HEADERS.items()]
                if not str(scope["path"]).startswith("/static/"):
                    headers.append((b"cache-control", b"no-store"))
                message["headers"] = [*message["headers"], *headers]
            await send(message)

        request = Request(scope)
        refusal = self.refusal(request)
        await (refusal or self._app)(scope, receive, send_with_headers)

    def refusal(self, request: Request) -> Response | None:
        """Return what refuses a request; None: it is admitted."""
        if request.method != "GET":
            return pages.plain_error(405, f"{request.method}: not allowed; this page only reads")
        return None


class Guard(ReadOnly):
    """Admits requests to a loopback host, with the method GET, and with the session's cookie."""

    def __init__(self, app: ASGIApp, key: str, cookie: str) -> None:
        super().__init__(app)
        self._key = key
        self._cookie = cookie

    def refusal(self, request: Request) -> Response | None:
        host = request.headers.get("host", "")
        if host.rpartition(":")[0] not in LOOPBACK and host not in LOOPBACK:
            named = printable(host)[:100]
            return pages.plain_error(
                421,
                f"Host: got {named!r}; expected 127.0.0.1 or localhost: open the printed address",
            )
        if refused := super().refusal(request):
            return refused
        if request.url.path == "/login":
            return self._login(request)
        given = request.cookies.get(self._cookie, "")
        if not secrets.compare_digest(given.encode(), self._key.encode()):
            return pages.plain_error(403, _TO_LOGIN)
        return None

    def _login(self, request: Request) -> Response:
        given = request.query_params.get("key", "")
        if not secrets.compare_digest(given.encode(), self._key.encode()):
            return pages.plain_error(403, _TO_LOGIN)
        wanted = request.query_params.get("to", "/")
        local = wanted.startswith("/") and not wanted.startswith(("//", "/\\"))
        response = HTMLResponse(redirection(wanted if local else "/", _ICON))
        response.set_cookie(self._cookie, self._key, httponly=True, samesite="strict", path="/")
        return response


def redirection(address: str, head: str = "") -> str:
    """Return a page that goes on to an address. `head`: further elements of its head.

    After `/login` it is in place of HTTP 303: a browser that comes from another site, or from a file, would not
    send the cookie, which is strict, with a redirect.
    """
    text = html.escape(address)
    return (
        f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={text}">'
        f'<title>Trainyard</title>{head}<main><a href="{text}">Continue</a></main>\n'
    )


def create_app(source: Source, key: str, cookie: str = "trainyard-ui") -> Starlette:
    """Return the application. `key`: what a browser must present once, at `/login?key=`,
    where `to` names the page to go on to."""
    return _app(lambda _: source, Middleware(Guard, key=key, cookie=cookie))


def create_shared_app(source_of: Callable[[Request], Source]) -> Starlette:
    """Return the application behind a proxy that signs users in.

    `source_of`: returns what the user of a request reads; raises UnknownUserError.
    """
    return _app(source_of, Middleware(SignedIn, source_of=source_of), stream_s=SHARED_STREAM_S)


class SignedIn(ReadOnly):
    """Admits requests of a signed-in user, with the method GET."""

    def __init__(self, app: ASGIApp, source_of: Callable[[Request], Source]) -> None:
        super().__init__(app)
        self._source_of = source_of

    def refusal(self, request: Request) -> Response | None:
        if refused := super().refusal(request):
            return refused
        if request.url.path == HEALTH:
            return PlainTextResponse("ok\n")
        try:
            self._source_of(request)
        except UnknownUserError as error:
            return pages.plain_error(403, str(error))
        return None


def _app(
    source_of: Callable[[Request], Source], guard: Middleware, stream_s: float = math.inf
) -> Starlette:
    server = _Server(source_of, stream_s)
    return Starlette(
        routes=[
            *(Route(path, server.page, methods=["GET"]) for path in pages.PATHS),
            Route("/events", server.events, methods=["GET"]),
            Route("/curves", server.curves, methods=["GET"]),
            Route("/log", server.log, methods=["GET"]),
            Mount("/static", StaticFiles(directory=_STATIC)),
        ],
        middleware=[guard],
        exception_handlers={404: _not_found},
    )


async def _not_found(_request: Request, _error: Exception) -> Response:
    return pages.error_page(404, "page not found; the pages are Runs, Queues and Nodes")


class _Server:
    def __init__(self, source_of: Callable[[Request], Source], stream_s: float) -> None:
        self._source_of = source_of
        self._stream_s = stream_s

    async def page(self, request: Request) -> Response:
        query = dict(request.query_params)
        status, page = await run_in_threadpool(
            _render, self._source_of(request), request.url.path, query, _queries(request.url.query)
        )
        return Response(page, status, media_type="text/html")

    async def events(self, request: Request) -> Response:
        """Send `main` of a page whenever it changes."""
        address = urlsplit(request.query_params.get("page", "/"))
        pairs = parse_qsl(address.query)
        source = self._source_of(request)
        until = time.monotonic() + self._stream_s

        async def stream() -> AsyncIterator[str]:
            last = ""
            while time.monotonic() < until:
                _, page = await run_in_threadpool(_render, source, address.path, dict(pairs), pairs)
                main = pages.main_of(page)
                if pages.without_times(main) != last:
                    last = pages.without_times(main)
                    yield _event("main", main)
                else:
                    yield _event("same", "")
                await asyncio.sleep(POLL_S)

        return _stream(stream())

    async def curves(self, request: Request) -> Response:
        """Return the curves of runs as JSON, by run id."""
        wanted = pages.named_runs(_queries(request.url.query))[:COMPARED_MAX]
        found: dict[str, Any] = {}
        source = self._source_of(request)
        for namespace, run_id in wanted:
            try:
                measured = await run_in_threadpool(source.curves, namespace, run_id)
                found[run_id] = measured.values() | {"gap": measured.gap}
            except (ClusterError, NoSuchRunError) as error:
                found[run_id] = {"gap": str(error)}
        return JSONResponse(found)

    async def log(self, request: Request) -> Response:
        """Send the lines of a rank's log, over restarts, until the run ends."""
        query = request.query_params
        rank, group = query.get("rank", "0"), query.get("group", "")
        namespace, run_id = query.get("namespace", ""), query.get("run", "")
        source = self._source_of(request)

        async def stream() -> AsyncIterator[str]:
            for name, value in (("rank", rank), ("group", group or "0")):
                if not value.isdecimal():
                    text = f"{name}: got {printable(value)}; expected a whole number from 0"
                    yield _event("note", text)
                    yield _event("end", "")
                    return
            wanted = int(rank), int(group) if group else None
            try:
                async for event in self._follow(source, namespace, run_id, *wanted):
                    yield event
            except (ClusterError, NoSuchRunError) as error:
                yield _event("note", str(error))
                yield _event("end", "")

        return _stream(stream())

    async def _follow(
        self, source: Source, namespace: str, run_id: str, rank: int, group: int | None
    ) -> AsyncIterator[str]:
        until = time.monotonic() + self._stream_s
        reader = None
        waits = False
        while time.monotonic() < until:
            last = reader.pod if reader else ""
            over = await run_in_threadpool(source.is_over, namespace, run_id)
            newer = await run_in_threadpool(source.log_reader, namespace, run_id, rank, last, group)
            for one in (reader, newer):
                if one is None:
                    continue
                if one is newer:
                    yield _event("note", f"{newer.pod}, container {newer.container}")
                with contextlib.suppress(UnreachableError):
                    lines = await run_in_threadpool(one.read)
                    if lines:
                        yield _event("lines", "\n".join(printable(line.text) for line in lines))
            reader = newer or reader
            if over:
                note = "the run has ended" if reader else "the run has ended; its pods are deleted"
                yield _event("note", note)
                yield _event("end", "")
                return
            if reader is None and not waits:
                waits = True
                yield _event("note", f"rank {rank} has no pod yet; waiting for it")
            await asyncio.sleep(LOG_POLL_S)


def _render(
    source: Source, path: str, query: dict[str, str], pairs: list[tuple[str, str]]
) -> tuple[int, str]:
    try:
        return 200, pages.render(source, path, query, pairs)
    except (ClusterError, NoSuchRunError, PageError) as error:
        return _status(error), pages.error_html(path, str(error))


def _queries(query: str) -> list[tuple[str, str]]:
    return parse_qsl(query)


def _status(error: Exception) -> int:
    if isinstance(error, NoSuchRunError):
        return 404
    if isinstance(error, PageError):
        return error.status
    if isinstance(error, ForbiddenError | UnknownCallerError):
        return 403
    return 502


def _event(name: str, text: str) -> str:
    return f"event: {name}\ndata: {json.dumps(text)}\n\n"


def _stream(events: AsyncIterator[str]) -> Response:
    return StreamingResponse(events, media_type="text/event-stream")
