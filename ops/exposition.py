"""What a control loop shows Prometheus, by Prometheus' own client.

The samples are made after each look and handed out afterwards: a scrape costs nothing and never sees half a look.
Names and labels are those of infra/observability/series.py.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from infra.observability.series import Series
from ops.cluster import ClusterError

if TYPE_CHECKING:
    from prometheus_client.core import Metric

Sample = tuple[Series, Mapping[str, str], float]


class Page:
    """The samples of the last look, read from any thread."""

    def __init__(self) -> None:
        self._samples: list[Sample] = []
        self._declared: tuple[Series, ...] = ()

    def put(self, samples: Iterable[Sample], declared: Iterable[Series] = ()) -> None:
        """Replace the samples. `declared`: series that have a head even without a sample."""
        self._samples, self._declared = list(samples), tuple(declared)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the last look, as a collector of Prometheus' client does."""
        found = {one: _family(one) for one in self._declared}
        for one, labels, value in self._samples:
            family = found.setdefault(one, _family(one))
            family.add_metric([labels[name] for name in one.labels], value)
        yield from found.values()


def _family(one: Series) -> Any:
    # Only what serves metrics needs the client.
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    kind = CounterMetricFamily if one.name.endswith("_total") else GaugeMetricFamily
    return kind(one.name, one.help, labels=one.labels)


def add_metrics(parser: argparse.ArgumentParser) -> None:
    """Add --metrics, which `serving` takes."""
    parser.add_argument(
        "--metrics",
        type=address,
        metavar="ADDRESS:PORT",
        help="serve /metrics to Prometheus there; default: nowhere",
    )


def address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (host and port.isdecimal() and 0 < int(port) < 65536):
        raise argparse.ArgumentTypeError(f"got {text}; expected ADDRESS:PORT, as 127.0.0.1:8643")
    return host, int(port)


@contextlib.contextmanager
def serving(place: tuple[str, int] | None, page: Page) -> Iterator[None]:
    """Serve a page under /metrics in the background; nothing without a place. Raises ClusterError."""
    if place is None:
        yield
        return
    from prometheus_client import CollectorRegistry, start_http_server

    host, port = place
    registry = CollectorRegistry()
    registry.register(page)
    try:
        server, _ = start_http_server(port, host, registry)
    except OSError as error:
        raise ClusterError(
            f"--metrics: {host}:{port}: cannot listen there: {error.strerror or error}"
        ) from None
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
