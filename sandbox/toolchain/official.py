"""Pulumi's official builds, preferred where the download site is reachable.

One request with a short timeout decides; otherwise the built engine and the stand-in provider are used.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
import tarfile
import tempfile
import urllib.request
from pathlib import Path

from sandbox import paths
from sandbox.reporting import Report
from sandbox.toolchain.tools import PULUMI_VERSION

SITE = "https://get.pulumi.com"
REACH_TIMEOUT_S = 4.0
DOWNLOAD_TIMEOUT_S = 60.0
_ARCHITECTURES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}


class OfficialUnavailable(Exception):
    """The official build is not available; the text gives the reason."""


def site_reachable(site: str = SITE) -> bool:
    """Whether the download site answers within `REACH_TIMEOUT_S`."""
    request = urllib.request.Request(f"{site}/latest-version", method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=REACH_TIMEOUT_S):
            return True
    except (OSError, ValueError):
        return False


def pulumi_folder() -> Path:
    """Return the folder of an official Pulumi, existing or not."""
    return paths.cache() / "toolchain" / f"pulumi-official-{PULUMI_VERSION}"


def download_pulumi(report: Report, site: str = SITE) -> Path:
    """Download, verify and unpack the official Pulumi; return the folder of its commands.

    Raises:
        OfficialUnavailable: no build for this machine, a failed download, or a wrong checksum.
    """
    architecture = _ARCHITECTURES.get(platform.machine())
    if architecture is None or platform.system() != "Linux":
        raise OfficialUnavailable(f"no build for {platform.system()} {platform.machine()}")
    name = f"pulumi-v{PULUMI_VERSION}-linux-{architecture}.tar.gz"
    report("downloading the official build")
    try:
        sums = _get(f"{site}/releases/sdk/pulumi-{PULUMI_VERSION}-checksums.txt").decode()
        archive = _get(f"{site}/releases/sdk/{name}")
    except OSError as error:
        raise OfficialUnavailable(f"download of {name} failed: {error}") from error
    wanted = next((line.split()[0] for line in sums.splitlines() if line.endswith(name)), None)
    got = hashlib.sha256(archive).hexdigest()
    if got != wanted:
        raise OfficialUnavailable(f"{name}: SHA-256 is {got}, the release lists {wanted}")
    return _unpack(archive)


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=DOWNLOAD_TIMEOUT_S) as answer:
        data: bytes = answer.read()
    return data


def _unpack(archive: bytes) -> Path:
    final = pulumi_folder()
    final.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=final.parent) as scratch:
        packed = Path(scratch) / "archive.tar.gz"
        packed.write_bytes(archive)
        with tarfile.open(packed) as tar:
            tar.extractall(scratch, filter="data")
        shutil.rmtree(final, ignore_errors=True)
        (Path(scratch) / "pulumi").rename(final)
    return final
