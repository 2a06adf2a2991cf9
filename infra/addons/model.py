"""What an add-on's plan is: values for its chart, and the objects that go before and after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from infra.kubernetes.objects import Manifest


@dataclass(frozen=True, kw_only=True)
class Installable:
    """One add-on as this stack installs it; chart, version and namespace are the table's."""

    add_on: str
    """Name in compatibility.ADD_ONS."""
    values: Mapping[str, Any]
    """Of the chart. Where images come from is left to the mirror."""
    after: tuple[str, ...] = ()
    """Add-ons that must be there first, where this stack installs them."""
    before: tuple[Manifest, ...] = ()
    """Objects made in its namespace before the release, such as ConfigMaps that its pods mount."""
    objects: tuple[Manifest, ...] = ()
    """Objects made after the release, such as its custom resources."""
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of its namespace beside the platform's own, such as those of Pod Security."""
