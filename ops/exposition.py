"""What a control loop shows Prometheus.

The text is made after each look and handed out afterwards, so a scrape costs nothing and never sees half a look.
Names and labels are those of infra/observability/series.py.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from infra.observability.series import Series
from ops.cluster import ClusterError

PATH: Final = "/metrics"
TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_CLIENT_S: Final = 10.0
"""How long a client may take to send its request."""

Sample = tuple[Series, Mapping[str, str], float]


def text(samples: Iterable[Sample], declared: Iterable[Series] = ()) -> str:
    """Return samples in Prometheus' text format. `declared`: series that have a head even without a sample."""
    found: dict[Series, list[str]] = {one: [] for one in declared}
    for what, labels, value in samples:
        found.setdefault(what, []).append(f"{what.name}{_labels(labels)} {value!r}\n")
    return "".join(
        f"# HELP {one.name} {one.help}\n# TYPE {one.name} {_kind(one)}\n{''.join(lines)}"
        for one, lines in found.items()
    )


def _kind(one: Series) -> str:
    return "counter" if one.name.endswith("_total") else "gauge"


def _labels(labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


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
