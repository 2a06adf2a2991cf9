"""Download the programs of published releases over HTTPS.

Each file is proven by its SHA-256; nothing unverified is kept. A download that breaks is tried once more, and one
that is slow is stopped.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import platform
import shutil
import tarfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from sandbox.reporting import Report
from sandbox.toolchain.lookup import version_output
from sandbox.toolchain.releases import Archive, Files, Image, Release, release_of
from sandbox.toolchain.tools import Tool

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

    def redirect_request(self, *args: Any) -> urllib.request.Request | None:
        _require_https(args[-1])
        return super().redirect_request(*args)


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
    """Return a small file. Raises DownloadError: it cannot be had, or has more than `TEXT_BYTES`."""
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

    Raises DownloadError: it cannot be had, is too slow, has another checksum, or `stop` was set.
    """
    partial = into.with_name(f".{into.name}.partial")
    for attempt in range(1, ATTEMPTS + 1):
        try:
            got = _get(url, partial, report, stop)
            break
        except (OSError, ValueError, http.client.HTTPException) as error:
            if attempt == ATTEMPTS or isinstance(error, urllib.error.HTTPError):
                raise DownloadError(f"{url}: {error or type(error).__name__}") from error
    if got != sha256:
        partial.unlink()
        raise DownloadError(f"{url}: SHA-256 is {got}, published is {sha256}")
    partial.rename(into)


def _get(url: str, partial: Path, report: Report, stop: threading.Event) -> str:
    """Write a file; return its SHA-256."""
    digest, have, started = hashlib.sha256(), 0, time.monotonic()
    with (
        _open(urllib.request.Request(url), STALL_TIMEOUT_S) as answer,
        partial.open("wb") as out,
    ):
        size = int(answer.headers.get("Content-Length") or 0)
        while chunk := answer.read(_CHUNK):
            out.write(chunk)
            digest.update(chunk)
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
    return digest.hexdigest()


_MACHINES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
_MANIFEST_TYPES = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)


def release_for_this_machine(tool: Tool) -> Release | None:
    """Return what upstream publishes of `tool` for this machine; None if nothing."""
    machine = _MACHINES.get(platform.machine())
    if machine is None or platform.system() != "Linux":
        return None
    return release_of(tool, machine)


def get_release(
    tool: Tool, release: Release, into: Path, report: Report, stop: threading.Event
) -> None:
    """Put the executables of `release` into the folder `into`; other files of the folder are replaced.

    Raises DownloadError: a file cannot be had, is not the published one, or is not the expected version.
    """
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    report("downloading")
    match release:
        case Files():
            _get_files(tool, release, into, report, stop)
        case Archive():
            _get_archive(release, into, report, stop)
        case Image():
            _get_from_image(tool, release, into, report, stop)
    for binary in tool.binaries:
        path = into / binary.name
        if not path.is_file():
            raise DownloadError(f"{release.site}: its release has no {binary.name}")
        path.chmod(0o755)
        if not binary.version_args:
            continue
        printed = version_output([str(path), *binary.version_args])
        if tool.accepts and not tool.accepts_version(printed):
            first = (printed.strip().splitlines() or ["nothing"])[0]
            raise DownloadError(f"{binary.name} of {release.site}: prints {first!r} as its version")


def _get_files(
    tool: Tool, release: Files, into: Path, report: Report, stop: threading.Event
) -> None:
    for binary in tool.binaries:
        url = f"{release.site}/{release.folder}/{binary.name}"
        words = get_text(f"{url}.sha256").decode(errors="replace").split()
        get_file(url, into / binary.name, _sha256(words[:1], url), report, stop)


def _get_archive(release: Archive, into: Path, report: Report, stop: threading.Event) -> None:
    folder = f"{release.site}/{release.folder}"
    lines = get_text(f"{folder}/{release.checksums}").decode(errors="replace").splitlines()
    rows = [line.split() for line in lines]
    named = [row[0] for row in rows if len(row) == 2 and row[1].lstrip("*") == release.name]
    packed = into / release.name
    get_file(f"{folder}/{release.name}", packed, _sha256(named, release.name), report, stop)
    _unpack(packed, lambda path: path.name if path.name in release.programs else None, into)
    packed.unlink()


def _sha256(found: list[str], name: str) -> str:
    """The only checksum found for `name`."""
    if len(found) != 1 or len(found[0]) != 64:
        raise DownloadError(f"{name}: no SHA-256 is published")
    return found[0].lower()


def _get_from_image(
    tool: Tool, release: Image, into: Path, report: Report, stop: threading.Event
) -> None:
    """Look for the program in the image's layers, the last one first: programs are added last."""
    (binary,) = tool.binaries
    base = f"{release.site}/v2/{release.repository}"
    try:
        layers = [str(layer["digest"]) for layer in _manifest(base, release.tag)["layers"]]
    except (KeyError, TypeError, AttributeError) as error:
        raise DownloadError(f"{base}: {release.tag} is not an image's manifest") from error
    for layer in reversed(layers):
        algorithm, _, digest = layer.partition(":")
        if algorithm != "sha256":
            raise DownloadError(f"{base}: a layer is named by {algorithm}, not by sha256")
        packed = into / f"{binary.name}.layer"
        get_file(f"{base}/blobs/sha256:{digest}", packed, digest, report, stop)
        _unpack(packed, lambda p: binary.name if str(p) == release.program else None, into)
        packed.unlink()
        if (into / binary.name).exists():
            return
    raise DownloadError(f"{base}: no layer of {release.tag} has {release.program}")


def _manifest(base: str, tag: str) -> dict[str, Any]:
    """The manifest of this machine's image: behind an index it is proven by its digest."""
    found = _json(get_text(f"{base}/manifests/{tag}", _MANIFEST_TYPES), base)
    if "manifests" not in found:
        return found
    wanted = {"os": "linux", "architecture": _MACHINES[platform.machine()]}
    for row in found["manifests"]:
        if wanted.items() <= row.get("platform", {}).items():
            digest = str(row["digest"])
            text = get_text(f"{base}/manifests/{digest}", _MANIFEST_TYPES)
            if digest != f"sha256:{hashlib.sha256(text).hexdigest()}":
                raise DownloadError(f"{base}: the manifest is not the one of {digest}")
            return _json(text, base)
    raise DownloadError(f"{base}: {tag} has no image for {wanted['architecture']}")


def _json(text: bytes, url: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise DownloadError(f"{url}: its manifest is not a JSON object")
    return found


def _unpack(packed: Path, name_of: Callable[[PurePosixPath], str | None], into: Path) -> None:
    """Extract those regular files for whose path in the archive `name_of` returns a name."""
    try:
        with tarfile.open(packed) as tar:
            for member in tar:
                name = name_of(PurePosixPath(member.name.removeprefix("/")))
                source = tar.extractfile(member) if name and member.isfile() else None
                if name is None or source is None:
                    continue
                with source, (into / name).open("wb") as out:
                    shutil.copyfileobj(source, out)
                (into / name).chmod(0o755)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DownloadError(f"{packed.name}: not a readable archive ({error})") from error
