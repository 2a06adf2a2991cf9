"""Content hashes of checkpoint files, written as `ALGORITHM:HEX`.

BLAKE3 where the Python package `blake3` is installed: on current processors it takes a third of
SHA-256's time or less. Otherwise SHA-256, which every Python has. A manifest names the algorithm of each file, so
that both are read; a reader without the package cannot verify BLAKE3, and says so.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from typing import Any, Final, Protocol

SHA256: Final = "sha256"
BLAKE3: Final = "blake3"
ALGORITHMS: Final = (BLAKE3, SHA256)


class UnknownHash(Exception):
    """A hash that this installation cannot compute; the text says what is missing."""


class Hasher(Protocol):
    """A running hash, as in hashlib. Releases the interpreter's lock during an update."""

    def update(self, block: Any, /) -> object:
        """Add bytes."""

    def hexdigest(self) -> str:
        """Return the hash of all bytes so far."""


@functools.cache
def _blake3() -> Callable[[], Hasher] | None:
    try:
        from blake3 import blake3
    except ImportError:
        return None
    made: Callable[[], Hasher] = blake3
    return made


def preferred() -> str:
    return SHA256 if _blake3() is None else BLAKE3


def new_hasher(algorithm: str) -> Hasher:
    """Return a hasher without content. Raises UnknownHash."""
    if algorithm == SHA256:
        return hashlib.sha256()
    if algorithm != BLAKE3:
        raise UnknownHash(f"hash {algorithm!r}: not known; must be one of {', '.join(ALGORITHMS)}")
    make = _blake3()
    if make is None:
        raise UnknownHash("hash blake3: needs the Python package blake3; install it to verify")
    return make()
