"""Where a mirror is, in the stack file."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import AfterValidator

from infra.config.fields import Str

_PART: Final = r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*"
_MIRROR: Final = re.compile(rf"{_PART}(?::[0-9]+)?(?:/{_PART})*")


def _mirror(value: str) -> str:
    host = value.partition("/")[0]
    if not _MIRROR.fullmatch(value) or not ("." in host or ":" in host):
        raise ValueError(
            "a registry, or a folder in one, such as registry.example.com/mirror, without a scheme; "
            "correct it"
        )
    return value


Mirror = Annotated[Str, AfterValidator(_mirror)]
"""Host, and perhaps a path, that stands in for every registry."""
