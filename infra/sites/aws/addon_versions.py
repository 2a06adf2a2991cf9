"""Pinned versions of EKS add-ons: addon_versions.yaml."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml

FILE: Final = Path(__file__).with_suffix(".yaml")

Versions = Mapping[str, Mapping[str, str]]
"""Version by Kubernetes version and add-on."""


@functools.cache
def load() -> Versions:
    found: Versions = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return found


def save(versions: Versions) -> None:
    """Write the table, and keep the file's comment."""
    lines = FILE.read_text(encoding="utf-8").splitlines(keepends=True)
    comment = "".join(line for line in lines if line.startswith("#"))
    table = {version: dict(found) for version, found in versions.items()}
    text = yaml.safe_dump(table, default_style=None).replace("'", '"')
    FILE.write_text(comment + text, encoding="utf-8")
    load.cache_clear()
