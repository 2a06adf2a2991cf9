"""EC2 instance types from infra/domain/catalog.yaml, the table that the program also reads.

The table is read as data because the pack must not import the program. The pack therefore requires a
checkout of the project and cannot be published alone. PyYAML is a dependency of pulumi.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml  # type: ignore[import-untyped]

_TABLE: Final = Path(__file__).resolve().parents[2] / "infra" / "domain" / "catalog.yaml"


@dataclass(frozen=True, kw_only=True)
class InstanceFacts:
    """Facts about one instance type."""

    gpus: int
    efa_interfaces: int
    """Network cards with EFA support."""
    on_demand: Mapping[str, float | None]
    """USD per hour by region; None: not sold there, or unknown."""
    spot: Mapping[str, float | None]


@cache
def instance_types() -> Mapping[str, InstanceFacts]:
    """Return the instance types of the table by name."""
    types: Mapping[str, Mapping[str, Any]] = yaml.safe_load(_TABLE.read_text())["types"]
    return {
        name: InstanceFacts(
            gpus=row["gpus"],
            efa_interfaces=len(row["efaCards"]),
            on_demand=row["onDemand"],
            spot=row["spot"],
        )
        for name, row in types.items()
    }
