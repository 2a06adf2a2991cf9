"""Tools come from PATH when they suit, else from the cache, and a download is checked."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from rich.console import Console

from sandbox.toolchain import lookup, official, tools
from sandbox.toolchain.ensure import ToolchainError, ensure, ensure_for_runs
from sandbox.toolchain.tools import ON_DEMAND_TOOLS, PULUMI_VERSION, TOOLS, Tool

ALL_TOOLS = (*TOOLS, *ON_DEMAND_TOOLS)
BY_NAME = {tool.name: tool for tool in ALL_TOOLS}


def _fake(folder: Path, name: str, prints: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\necho '{prints}'\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("name", "printed", "accepted"),
    [
        ("kubernetes", "Kubernetes v1.36.3", True),
        ("kubernetes", "Client Version: v1.36.9", True),
        ("kubernetes", "Client Version: v1.34.4", False),
        ("pulumi", "v3.259.0", True),
        ("pulumi", "v3.312.1", True),
        ("pulumi", "v3.258.9", False),
        ("etcd", "etcd Version: 3.6.8", True),
        ("etcd", "etcd Version: 3.5.9", False),
        ("kueue", "anything", False),
        ("prometheus", "prometheus, version 3.13.5 (branch: , revision: unknown)", True),
        ("prometheus", "promtool, version 2.53.3+ds1 (branch: debian/sid)", True),
        ("prometheus", "prometheus, version 2.42.0+ds (branch: debian/sid)", False),
        ("kube-state-metrics", "kube-state-metrics, version v2.18.0 (branch: )", True),
        ("kube-state-metrics", "kube-state-metrics, version 2.9.0 (branch: )", False),
    ],
)
def test_only_suitable_versions_on_path_are_used(name: str, printed: str, accepted: bool) -> None:
    assert BY_NAME[name].accepts_version(printed) is accepted


def test_a_tool_on_path_is_used_when_all_its_binaries_suit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    names = [binary.name for binary in BY_NAME["kubernetes"].binaries]
    for name in names:
        _fake(tmp_path, name, "Kubernetes v1.36.7")
    assert lookup.find_on_path(BY_NAME["kubernetes"]) == {name: tmp_path / name for name in names}
    _fake(tmp_path, "kubectl", "Client Version: v1.32.0")
    assert lookup.find_on_path(BY_NAME["kubernetes"]) == {}


def test_incomplete_cache_entry_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINYARD_CACHE", str(tmp_path))
    tool = BY_NAME["kubernetes"]
    _fake(lookup.cache_entry(tool) / "bin", "kubectl", "")
    assert lookup.find_in_cache(tool) is None
    for binary in tool.binaries:
        _fake(lookup.cache_entry(tool) / "bin", binary.name, "")
    assert lookup.find_in_cache(tool) is not None


@pytest.mark.parametrize("tool", ALL_TOOLS, ids=lambda tool: tool.name)
def test_every_tool_is_pinned_to_the_version_that_the_table_states(tool: Tool) -> None:
    pinned = (tool.recipe / "go.mod").read_text()
    assert f"{tool.module} v{tool.version}" in pinned
    assert f"{tool.module} v{tool.version} h1:" in (tool.recipe / "go.sum").read_text()


def test_build_tag_changes_the_cache_entry() -> None:
    tool = BY_NAME["prometheus"]
    assert replace(tool, tags=()).key != tool.key


def test_a_new_version_of_a_tool_that_none_imports_rebuilds_only_that_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    importer, leaf = BY_NAME["kueue"], BY_NAME["kwok"]
    pins = {name: (importer.recipe / name).read_text() for name in ("go.mod", "go.sum")}
    monkeypatch.setattr(tools, "HERE", tmp_path)
    (tmp_path / importer.graph).mkdir()

    def keys(changed: str) -> tuple[str, str]:
        for name, text in pins.items():
            assert f"{changed} v" in text
            new = text.replace(f"{changed} v", f"{changed} v9")
            (tmp_path / importer.graph / name).write_text(new)
        return importer.key, leaf.key

    first, with_new_leaf = keys("sigs.k8s.io/jobset"), keys("sigs.k8s.io/kwok")
    assert first[1] != with_new_leaf[1]
    for name, text in pins.items():
        (tmp_path / importer.graph / name).write_text(text)
    assert importer.key == with_new_leaf[0] != first[0]


def test_an_unknown_tool_is_rejected_before_anything_is_built() -> None:
    with pytest.raises(ToolchainError, match="tool kueu: not in the table"):
        ensure(Console(quiet=True), "etcd", "kueu")


def test_a_run_does_not_wait_for_the_tools_of_monitoring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINYARD_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")

    def put(tool: Tool) -> None:
        for binary in tool.binaries:
            _fake(lookup.cache_entry(tool) / "bin", binary.name, "")
        for folder in tool.assets:
            (lookup.cache_entry(tool) / "assets" / folder).mkdir(parents=True)

    for tool in TOOLS:
        if tool.name not in tools.MONITORING_TOOLS:
            put(tool)
    made = ensure_for_runs(Console(quiet=True))
    assert not made.can_monitor and {"kube-apiserver", "kueue-manager"} <= set(made.binaries)
    for name in tools.MONITORING_TOOLS:
        put(BY_NAME[name])
    made = ensure_for_runs(Console(quiet=True))
    assert made.can_monitor and set(made.sources) == {tool.name for tool in TOOLS}


class _Site(BaseHTTPRequestHandler):
    archive = b""
    sums = ""

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.end_headers()

    def do_GET(self) -> None:
        body = self.sums.encode() if self.path.endswith(".txt") else self.archive
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        """Quiet."""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TRAINYARD_CACHE", str(tmp_path / "cache"))
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        data = b"#!/bin/sh\n"
        member = tarfile.TarInfo("pulumi/pulumi")
        member.size, member.mode = len(data), 0o755
        tar.addfile(member, io.BytesIO(data))
    _Site.archive = packed.getvalue()
    digest = hashlib.sha256(_Site.archive).hexdigest()
    _Site.sums = f"{digest}  pulumi-v{PULUMI_VERSION}-linux-x64.tar.gz\n"
    _Site.sums += f"{digest}  pulumi-v{PULUMI_VERSION}-linux-arm64.tar.gz\n"
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_the_official_engine_is_unpacked_when_its_checksum_fits(site: str) -> None:
    assert official.site_reachable(site)
    folder = official.download_pulumi(lambda _: None, site)
    assert (folder / "pulumi").stat().st_mode & 0o100


def test_an_official_engine_with_a_wrong_checksum_is_refused(site: str) -> None:
    _Site.archive += b"more"
    with pytest.raises(official.OfficialUnavailable, match="SHA-256"):
        official.download_pulumi(lambda _: None, site)
    assert not official.pulumi_folder().exists()


def test_a_site_that_does_not_answer_is_not_reachable() -> None:
    assert not official.site_reachable("http://127.0.0.1:9")
