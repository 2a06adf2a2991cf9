"""References to models outside of the team's volume. Imports nothing heavy: run files are checked with it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from trainyard.contract import DATA_MOUNT
from trainyard.hashing import content_hash
from trainyard.objects.location import BadLocation, Location, is_location

HUB: Final = "hub:"
TOKEN_ENV: Final = "HF_TOKEN"
"""Variable of a team secret with the token of a hub."""
ENDPOINT_ENV: Final = "HF_ENDPOINT"
"""Variable with the address of another hub than huggingface.co."""
FOLDER: Final = f"{DATA_MOUNT}/models"
_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
_REFERENCE: Final = re.compile(rf"hub:({_NAME})/({_NAME})@([0-9a-f]{{40}})")


class BadReference(ValueError):
    """A text that is not a reference; one line."""


@dataclass(frozen=True, kw_only=True)
class HubModel:
    organization: str
    name: str
    commit: str

    @property
    def folder(self) -> str:
        """Where runs of the team find it."""
        return f"{FOLDER}/hub/{self.organization}/{self.name}/{self.commit}"


@dataclass(frozen=True, kw_only=True)
class BucketModel:
    """A model's folder in S3."""

    location: Location

    @property
    def folder(self) -> str:
        """Where runs of the team find it."""
        return f"{FOLDER}/s3/{content_hash(self.location.url())[:16]}"


def is_remote(path: str) -> bool:
    """Return whether `model.path` names something to fetch rather than a folder."""
    return path.startswith(HUB) or is_location(path)


def parse_reference(text: str) -> HubModel | BucketModel:
    """Parse a reference. Raises BadReference."""
    if is_location(text):
        try:
            return BucketModel(location=Location.parse(text))
        except BadLocation as error:
            raise BadReference(str(error)) from None
    found = _REFERENCE.fullmatch(text)
    if not found:
        raise BadReference(
            f"got {text!r}; must be hub:ORG/NAME@COMMIT with a commit of 40 hexadecimal digits"
        )
    return HubModel(organization=found[1], name=found[2], commit=found[3])
