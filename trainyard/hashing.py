"""Hashes of JSON values: equal values have equal hashes."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text.

    Raises ValueError for NaN and infinities, TypeError for what JSON cannot hold.
    """
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def content_hash(value: Any) -> str:
    """SHA-256 of the canonical JSON of `value`: 64 hexadecimal characters."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
