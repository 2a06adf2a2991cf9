"""Credentials in plain text, which a committed file must not contain."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from infra.sections.errors import ConfigIssue, join

_SECRET_VALUES: Final = re.compile(
    r"AKIA[0-9A-Z]{16}|ASIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{30,}|hf_[A-Za-z0-9]{30,}"
    r"|xox[bapr]-[A-Za-z0-9-]{10,}|sk-[A-Za-z0-9]{20,}|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
_SECRET_KEYS: Final = re.compile(
    r"(.*[-_])?(password|passwd|secret|secretkey|secretaccesskey|apikey|api[-_]key|accesskey"
    r"|access[-_]key|authtoken|accesstoken|access[-_]token|privatekey|private[-_]key)",
    re.IGNORECASE,
)


def secrets_in(value: Any, path: str) -> Iterator[ConfigIssue]:
    """Yield an issue for each value in a parsed file that looks like a credential."""
    if isinstance(value, Mapping):
        if set(value) == {"secure"}:
            return
        for key, inner in value.items():
            place = join(path, [str(key)])
            if isinstance(inner, str) and inner and _SECRET_KEYS.fullmatch(str(key)):
                yield _secret(place)
            else:
                yield from secrets_in(inner, place)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from secrets_in(inner, f"{path}[{index}]")
    elif isinstance(value, str) and _SECRET_VALUES.search(value):
        yield _secret(path)


def _secret(path: str) -> ConfigIssue:
    # The path may name a file, as in `program.source: key.py`, so it is no part of a line to be split.
    return ConfigIssue(
        path=path,
        code="plaintext-secret",
        problem="looks like a secret in plain text",
        valid="a committed file must not contain secrets",
        action="put it in a Kubernetes Secret, and rotate it",
    )
