"""Read complete JSON lines of a file that another process appends to."""

from __future__ import annotations

import json
from io import BufferedReader
from pathlib import Path
from typing import Any


class Tail:
    """Yields each line once; a file that replaces it is read from its beginning."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._stream: BufferedReader | None = None
        self._inode = -1
        self._torn = b""

    def lines(self, most: int) -> list[dict[str, Any]]:
        """Return up to `most` new lines; empty if there are none yet."""
        self._follow()
        found: list[dict[str, Any]] = []
        while self._stream and len(found) < most:
            line = self._torn + self._stream.readline()
            if not line.endswith(b"\n"):
                self._torn = line
                break
            self._torn = b""
            try:
                values = json.loads(line)
            except ValueError:
                continue
            if isinstance(values, dict):
                found.append(values)
        return found

    def close(self) -> None:
        """Close the file."""
        if self._stream:
            self._stream.close()
            self._stream = None

    def _follow(self) -> None:
        try:
            inode = self._file.stat().st_ino
            if self._stream and inode == self._inode:
                return
            self.close()
            self._stream, self._inode, self._torn = self._file.open("rb"), inode, b""
        except FileNotFoundError:
            return
