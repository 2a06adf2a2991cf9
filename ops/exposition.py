"""What a control loop shows Prometheus, by Prometheus' own client.

The samples are made after each look and handed out afterwards: a scrape costs nothing and never sees half a look.
Names and labels are those of infra/observability/series.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from socketserver import BaseServer
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


def serve(address: str, port: int, page: Page) -> BaseServer:
    """Serve a page under /metrics in the background; the caller shuts the server down. Raises ClusterError."""
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry()
    registry.register(page)
    try:
        server, _ = start_http_server(port, address, registry)
    except OSError as error:
        raise ClusterError(
            f"--metrics: {address}:{port}: cannot listen there: {error.strerror or error}"
        ) from None
    return server
