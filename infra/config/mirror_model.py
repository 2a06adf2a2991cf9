"""Where a mirror is, in the stack file."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import AfterValidator

from infra.config.errors import invalid
from infra.config.types import REPOSITORY, Str

_MIRROR: Final = re.compile(REPOSITORY)


def _mirror(value: str) -> str:
    host = value.partition("/")[0]
    if not _MIRROR.fullmatch(value) or not ("." in host or ":" in host):
        raise invalid(
            "registry",
            "must be a registry, or a folder in one, such as registry.example.com/mirror, without a "
            "scheme",
        )
    return value


Mirror = Annotated[Str, AfterValidator(_mirror)]
"""Host, and perhaps a path, that stands in for every registry."""
