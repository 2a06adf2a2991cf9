"""The dashboards as Grafana reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from infra.observability import dashboards

Document = dict[str, Any]
DOCUMENTS: Final[dict[str, Document]] = {
    name: json.loads(text) for name, text in dashboards.texts().items()
}


def panels(document: Document) -> list[Document]:
    """Panels without the headings of rows."""
    return [panel for panel in document["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[tuple[str, str]]:
    """`DASHBOARD: TITLE` and the expression of each query of a panel."""
    for name, document in DOCUMENTS.items():
        for panel in panels(document):
            for target in panel["targets"]:
                yield f"{name}: {panel['title']}", target["expr"]
