"""Download files over HTTPS: bounded, resumed once, stopped when slow; nothing unverified is kept."""

from __future__ import annotations

import hashlib
import http.client
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO

from sandbox.reporting import Report

LOOK_TIMEOUT_S = 4.0
"""For one look at a site, name resolution included."""
STALL_TIMEOUT_S = 15.0
"""Without a byte for this long, a connection counts as broken."""
SLOW_AFTER_S = 15.0
SLOW_BYTES_PER_S = 500_000
"""A slower download than this takes longer than the build that it would save."""
TEXT_BYTES = 4 * 1024**2
"""Most bytes of a checksum list or a manifest."""
ATTEMPTS = 2
_CHUNK = 1 << 18


class DownloadError(Exception):
    """A file cannot be had or is not the published one; the text names it and the reason."""


class _SecureRedirects(urllib.request.HTTPRedirectHandler):
    """Follow redirects to permitted addresses only."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        _require_https(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _require_https(url: str) -> None:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "https" or (parts.scheme == "http" and parts.hostname == "127.0.0.1"):
        return
    raise DownloadError(f"{url}: not https")


def _open(request: urllib.request.Request, timeout_s: float) -> http.client.HTTPResponse:
    _require_https(request.full_url)
    opener = urllib.request.build_opener(_SecureRedirects)
    answer: http.client.HTTPResponse = opener.open(request, timeout=timeout_s)
    return answer


def reachable(urls: Iterable[str]) -> set[str]:
    """Return those of the addresses that answer within `LOOK_TIMEOUT_S`; all are asked at once."""
    answered: set[str] = set()

    def look(url: str) -> None:
        with suppress(OSError, ValueError, http.client.HTTPException, DownloadError):
            _open(urllib.request.Request(url, method="HEAD"), LOOK_TIMEOUT_S).close()
            answered.add(url)

    looks = [threading.Thread(target=look, args=(url,), daemon=True) for url in set(urls)]
    for each in looks:
        each.start()
    deadline = time.monotonic() + LOOK_TIMEOUT_S
    for each in looks:
        each.join(max(0.0, deadline - time.monotonic()))
    return set(answered)


def get_text(url: str, accept: str = "*/*") -> bytes:
    """Return a small file.

    Raises:
        DownloadError: it cannot be had, or has more than `TEXT_BYTES`.
    """
    try:
        with _open(
            urllib.request.Request(url, headers={"Accept": accept}), STALL_TIMEOUT_S
        ) as answer:
            data = answer.read(TEXT_BYTES + 1)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise DownloadError(f"{url}: {error or type(error).__name__}") from error
    if len(data) > TEXT_BYTES:
        raise DownloadError(f"{url}: has more than {TEXT_BYTES} bytes")
    return data


def get_file(url: str, into: Path, sha256: str, report: Report, stop: threading.Event) -> None:
    """Write the file of `url` to `into`, which appears only when its SHA-256 is `sha256`.

    A broken connection is resumed once where it broke.

    Raises:
        DownloadError: it cannot be had, is too slow, has another checksum, or `stop` was set.
    """
    partial = into.with_name(f".{into.name}.partial")
    partial.unlink(missing_ok=True)
    started = time.monotonic()
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _append(url, partial, report, stop, started)
            break
        except urllib.error.HTTPError as error:
            raise DownloadError(f"{url}: {error}") from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            if attempt == ATTEMPTS:
                raise DownloadError(f"{url}: {error or type(error).__name__}") from error
    with partial.open("rb") as handle:
        got = hashlib.file_digest(handle, "sha256").hexdigest()
    if got != sha256:
        partial.unlink()
        raise DownloadError(f"{url}: SHA-256 is {got}, published is {sha256}")
    partial.rename(into)


def _append(url: str, partial: Path, report: Report, stop: threading.Event, started: float) -> None:
    have = partial.stat().st_size if partial.exists() else 0
    headers = {"Range": f"bytes={have}-"} if have else {}
    with _open(urllib.request.Request(url, headers=headers), STALL_TIMEOUT_S) as answer:
        if answer.status != http.client.PARTIAL_CONTENT:
            have = 0
        size = int(answer.headers.get("Content-Length") or 0) + have
        with partial.open("ab" if have else "wb") as out:
            while chunk := answer.read(_CHUNK):
                out.write(chunk)
                have += len(chunk)
                took = time.monotonic() - started
                if stop.is_set():
                    raise DownloadError(f"{url}: stopped")
                if took > SLOW_AFTER_S and have / took < SLOW_BYTES_PER_S:
                    raise DownloadError(f"{url}: slow ({have / took / 1000:.0f} kB/s)")
                of_size = f" of {size / 1e6:.0f}" if size else ""
                report(f"downloading {partial.name[1:-8]}: {have / 1e6:.0f}{of_size} MB")
    if have < size:
        raise http.client.IncompleteRead(b"", size - have)
