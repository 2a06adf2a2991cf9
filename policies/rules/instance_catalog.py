"""Facts about EC2 instance types, from the table that the program reads: infra/domain/catalog.yaml.

It is read as data: the pack imports nothing of the program, and a fact has one home. So the pack
stands in a checkout of the project and is not published alone; without the table it does not start.
PyYAML comes with pulumi.
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
    """What rules need of one instance type."""

    gpus: int
    efa_interfaces: int
    """Network cards that take an EFA interface; 0 where the type has none."""
    on_demand: Mapping[str, float | None]
    """USD an hour by region; None: not sold there, or not known."""
    spot: Mapping[str, float | None]


@cache
def instance_types() -> Mapping[str, InstanceFacts]:
    """Every instance type of the table, by name."""
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
