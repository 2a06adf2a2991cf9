"""A local server with the layout of the sites that publish the toolchain."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from sandbox.toolchain import releases
from sandbox.toolchain.download import release_for_this_machine
from sandbox.toolchain.releases import Archive, Files, Image
from sandbox.toolchain.tools import Tool

SITES = ("KUBERNETES", "GITHUB", "PULUMI", "REGISTRY")
PRINTS = {
    "kubernetes": "v1.36.3",
    "etcd": "etcd Version: 3.6.8",
    "prometheus": "prometheus, version 3.13.5 (branch: HEAD)",
    "pulumi": "v3.259.0",
    "kwok": "kwok version v0.8.0",
    "kube-state-metrics": "kube-state-metrics, version v2.18.0 (branch: )",
}
"""What the published programs print as their version."""


def program(prints: str) -> bytes:
    """An executable that prints this text; long enough to be cut."""
    return f"#!/bin/sh\necho '{prints}'\nexit 0\n{'#' * 4000}\n".encode()


def archive(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o755
            tar.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass
class Upstream:
    """Files by path, and what goes wrong: paths whose first answers break in the middle, or trickle."""

    files: dict[str, bytes] = field(default_factory=dict)
    cut: dict[str, int] = field(default_factory=dict)
    slow: set[str] = field(default_factory=set)
    redirects: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    url: str = ""

    def publish(self, tool: Tool, programs: Mapping[str, bytes] | None = None) -> list[str]:
        """Add what upstream publishes of this tool; return the paths of its programs' files.

        `programs`: the executables by name; by default, all print a version and do no more.
        """
        release = release_for_this_machine(tool)
        assert release is not None
        if programs is None:
            binaries = [one.name for one in tool.binaries]
            names = release.programs if isinstance(release, Archive) else binaries
            programs = dict.fromkeys(names, program(PRINTS.get(tool.name, "")))
        site = release.site.removeprefix(self.url)
        self.files[f"{site}/{releases.LOOK[release.site]}"] = b"here"
        if isinstance(release, Files):
            paths = {f"{site}/{release.folder}/{name}": data for name, data in programs.items()}
            self.files |= paths
            self.files |= {f"{path}.sha256": sha256(data).encode() for path, data in paths.items()}
            return list(paths)
        if isinstance(release, Archive):
            packed = archive({f"{tool.name}/{name}": data for name, data in programs.items()})
            path = f"{site}/{release.folder}/{release.name}"
            sums = f"{'0' * 64}  other.tar.gz\n{sha256(packed)}  {release.name}\n"
            self.files |= {
                path: packed,
                f"{site}/{release.folder}/{release.checksums}": sums.encode(),
            }
            return [path]
        (data,) = programs.values()
        return self._publish_image(site, release, data)

    def _publish_image(self, site: str, release: Image, data: bytes) -> list[str]:
        base = f"{site}/v2/{release.repository}"
        layers = [archive({"etc/passwd": b"root"}), archive({release.program: data})]
        blobs = {f"{base}/blobs/sha256:{sha256(layer)}": layer for layer in layers}
        manifest = json.dumps(
            {"layers": [{"digest": f"sha256:{sha256(layer)}"} for layer in layers]}
        ).encode()
        digest = f"sha256:{sha256(manifest)}"
        rows = [
            {"digest": digest, "platform": {"os": "linux", "architecture": machine}}
            for machine in ("amd64", "arm64")
        ]
        index = json.dumps({"manifests": rows}).encode()
        manifests = {
            f"{base}/manifests/{release.tag}": index,
            f"{base}/manifests/{digest}": manifest,
        }
        self.files |= blobs | manifests
        return [list(blobs)[-1]]


@contextmanager
def upstream(monkeypatch: pytest.MonkeyPatch) -> Iterator[Upstream]:
    """Serve an empty upstream in place of all sites; nothing of it is published yet."""
    made, stopped = Upstream(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(200 if self.path in made.files else 404)
            self.end_headers()

        def do_GET(self) -> None:
            made.asked.append(self.path)
            if target := made.redirects.get(self.path):
                self.send_response(302)
                self.send_header("Location", target)
                self.end_headers()
                return
            body = made.files.get(self.path)
            if body is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if made.cut.get(self.path, 0) > 0:
                made.cut[self.path] -= 1
                self.wfile.write(body[: len(body) // 2])
                return
            if self.path in made.slow:
                self.wfile.write(body[:1])
                self.wfile.flush()
                stopped.wait(30)
                return
            self.wfile.write(body)

        def log_message(self, *_args: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    made.url = f"http://127.0.0.1:{server.server_port}"
    for name in SITES:
        site = f"{made.url}/{name.lower()}"
        monkeypatch.setitem(releases.LOOK, site, releases.LOOK[getattr(releases, name)])
        monkeypatch.setattr(releases, name, site)
    try:
        yield made
    finally:
        stopped.set()
        server.shutdown()
        server.server_close()
