"""The Platform record as a text that each team may read, so that its members render runs as `pulumi up` does.

A client must understand all of it, or it would render other objects. Defaults are therefore left out, and a reader
rejects a text that it does not reproduce exactly: a fact that only a newer release knows is such a difference.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import pydantic

from infra.domain import catalog
from infra.domain.platform import Platform

VERSION: Final = "0.1.0"
"""Of this project, as in pyproject.toml."""
FORMAT: Final = 1
"""Incremented when the meaning of something in the text changes; additions do not need that."""


class RecordError(ValueError):
    """The text cannot be used by this client; says why and what to do."""


@dataclass(frozen=True, kw_only=True)
class PublishedRecord:
    platform: Platform
    """With this team only."""
    images: Mapping[str, str]
    """References by digest, by the names of the stack file."""
    version: str = ""
    """Version of the project that wrote it; empty: older than versions."""


@cache
def _adapter() -> pydantic.TypeAdapter[Platform]:
    return pydantic.TypeAdapter(Platform)


def _plain(platform: Platform) -> dict[str, Any]:
    found: dict[str, Any] = _adapter().dump_python(platform, mode="json", exclude_defaults=True)
    # The order of a set differs from process to process.
    return found | {"launchers": sorted(found["launchers"])}


def _instance_types(platform: Platform) -> dict[str, dict[str, Any]]:
    """Return the catalog's facts that decide sizes and placement, by type; prices and interruptions may differ."""
    found = {}
    for name in sorted({name for pool in platform.pools for name in pool.instance_types}):
        facts = dataclasses.asdict(catalog.load().types[name])
        del facts["prices"], facts["interruptions"]
        found[name] = facts
    return found


def to_text(platform: Platform, team: str, images: Mapping[str, str]) -> str:
    """Return the record of one team: no other team's name, queue or quota is in it."""
    own = dataclasses.replace(platform, teams={team: platform.teams[team]})
    record = {
        "format": FORMAT,
        "version": VERSION,
        "platform": _plain(own),
        "images": dict(sorted(images.items())),
        "instanceTypes": _instance_types(own),
    }
    return json.dumps(record, sort_keys=True, default=str)


def from_text(text: str) -> PublishedRecord:
    """Return the record of a text. Raises RecordError if this client does not understand all of it."""
    try:
        record = json.loads(text)
        written = int(record["format"])
    except (ValueError, TypeError, KeyError):
        raise RecordError("it is not a Platform record; deploy the stack again") from None
    if written != FORMAT:
        raise _skew(record, f"it has format {written}, and this client reads {FORMAT}")
    try:
        platform = _adapter().validate_python(record["platform"])
        images = {str(name): str(image) for name, image in record["images"].items()}
        understood = json.loads(json.dumps(_plain(platform)))
        types = json.loads(json.dumps(_instance_types(platform), default=str))
    except (pydantic.ValidationError, KeyError, TypeError, AttributeError):
        raise _skew(record, "it has facts that this client does not know") from None
    if unknown := sorted(_differences(record["platform"], understood, "")):
        raise _skew(record, f"this client does not understand {', '.join(unknown[:5])}")
    if types != record.get("instanceTypes"):
        raise _skew(record, "it was made with another catalog of instance types")
    return PublishedRecord(platform=platform, images=images, version=str(record.get("version", "")))


def _skew(record: Mapping[str, Any], why: str) -> RecordError:
    """Return the error for a record of another release, with both versions and what to install."""
    written = str(record.get("version") or "an older release")
    apart = f"the stack is of {written}, this client of {VERSION}"
    install = f'pip install "trainyard[cli]=={written}"'
    if written == VERSION:
        apart = f"the stack and this client are of different commits of {VERSION}"
    if written == VERSION or "version" not in record:
        install = "install trainyard[cli] from the commit that the stack was deployed from"
    return RecordError(f"{why}: {apart}; {install}, or deploy the stack again")


def _differences(written: Any, understood: Any, path: str) -> set[str]:
    if isinstance(written, dict) and isinstance(understood, dict):
        return {
            found
            for key in written.keys() | understood.keys()
            for found in _differences(
                written.get(key), understood.get(key), f"{path}.{key}" if path else str(key)
            )
        }
    return set() if written == understood else {path}
