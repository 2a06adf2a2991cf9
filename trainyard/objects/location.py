"""S3 locations: a bucket and a key prefix."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

SCHEME: Final = "s3://"
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
"""docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html"""
_MAX_KEY_BYTES: Final = 1024


class BadLocation(ValueError):
    """A text that is not s3://BUCKET/PREFIX; one line."""


@dataclass(frozen=True, kw_only=True)
class Location:
    bucket: str
    prefix: str
    """Empty, or ending in a slash, so that `run` does not match `run2`."""

    @classmethod
    def parse(cls, text: str) -> Location:
        """Parse `s3://BUCKET/PREFIX`. Raises BadLocation."""
        bucket, _, prefix = text.removeprefix(SCHEME).partition("/")
        words = prefix.removesuffix("/").split("/") if prefix.removesuffix("/") else []
        sound = bool(_BUCKET.fullmatch(bucket)) and not {"", ".", ".."} & set(words)
        if not text.startswith(SCHEME) or not sound or len(prefix.encode()) > _MAX_KEY_BYTES // 2:
            raise BadLocation(f"got {text!r}; must be s3://BUCKET/PREFIX")
        return cls(bucket=bucket, prefix="".join(f"{word}/" for word in words))

    def below(self, name: str) -> Location:
        return Location(bucket=self.bucket, prefix=f"{self.prefix}{name}/")

    def key(self, name: str) -> str:
        return f"{self.prefix}{name}"

    def url(self, name: str = "") -> str:
        """Return `s3://BUCKET/PREFIX/NAME` without a trailing slash."""
        return f"{SCHEME}{self.bucket}/{self.key(name)}".removesuffix("/")

    def __str__(self) -> str:
        return self.url()


def is_location(text: str) -> bool:
    """Return whether a text is an S3 URL rather than a path."""
    return text.startswith(SCHEME)
