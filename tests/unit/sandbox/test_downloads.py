"""What upstream publishes is downloaded where it can be had, and nothing of it is used unproven."""

from __future__ import annotations

import importlib
import io
import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from sandbox.toolchain import download, lookup
from sandbox.toolchain.builder import Builder, BuildError
from sandbox.toolchain.download import (
    DownloadError,
    get_release,
    reachable,
    release_for_this_machine,
)
from sandbox.toolchain.ensure import ToolchainError, ensure
from sandbox.toolchain.tools import TOOLS, Tool
from tests.unit.sandbox.upstream import PRINTS, Upstream, program, sha256, upstream

ensuring = importlib.import_module("sandbox.toolchain.ensure")
"""The module: its package exports the function under the same name."""
BY_NAME = {tool.name: tool for tool in TOOLS}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Upstream]:
    monkeypatch.setenv("TRAINYARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    # One look and one `--version` are short on a machine that is not busy with other tests.
    monkeypatch.setattr(download, "LOOK_TIMEOUT_S", 60.0)
    monkeypatch.setattr(lookup, "VERSION_TIMEOUT_S", 60.0)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with upstream(monkeypatch) as made:
        yield made


def get(tool: Tool, into: Path) -> None:
    release = release_for_this_machine(tool)
    assert release is not None
    get_release(tool, release, into, lambda _text: None, threading.Event())


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_every_tool_of_a_sandbox_can_be_downloaded(
    tool: Tool, site: Upstream, tmp_path: Path
) -> None:
    site.publish(tool)
    get(tool, tmp_path / "bin")
    for binary in tool.binaries:
        printed = subprocess.check_output([tmp_path / "bin" / binary.name], text=True)
        assert printed.strip() == PRINTS.get(tool.name, "")
    assert not list((tmp_path / "bin").glob("*.tar.gz")), "archives are removed"


@pytest.mark.parametrize("name", ["kubernetes", "etcd", "kueue"])
def test_a_file_with_another_checksum_is_refused(name: str, site: Upstream, tmp_path: Path) -> None:
    for path in site.publish(BY_NAME[name]):
        site.files[path] += b"more"
    with pytest.raises(DownloadError, match="SHA-256 is"):
        get(BY_NAME[name], tmp_path / "bin")


def test_a_manifest_that_is_not_the_one_of_its_digest_is_refused(
    site: Upstream, tmp_path: Path
) -> None:
    site.publish(BY_NAME["kueue"])
    (path,) = [path for path in site.files if "/manifests/sha256:" in path]
    site.files[path] = json.dumps({"layers": []}).encode()
    with pytest.raises(DownloadError, match="the manifest is not the one"):
        get(BY_NAME["kueue"], tmp_path / "bin")


def test_a_release_without_a_checksum_is_refused(site: Upstream, tmp_path: Path) -> None:
    site.publish(BY_NAME["etcd"])
    (path,) = [path for path in site.files if path.endswith("SHA256SUMS")]
    site.files[path] = b"<html>sign in</html>"
    with pytest.raises(DownloadError, match="no SHA-256 is published"):
        get(BY_NAME["etcd"], tmp_path / "bin")


def test_a_program_of_another_version_is_refused(site: Upstream, tmp_path: Path) -> None:
    tool = BY_NAME["kubernetes"]
    old = program("Kubernetes v1.20.0")
    for path in site.publish(tool):
        site.files |= {path: old, f"{path}.sha256": sha256(old).encode()}
    with pytest.raises(DownloadError, match=r"v1\.20\.0"):
        get(tool, tmp_path / "bin")


def test_a_broken_download_is_tried_once_more(site: Upstream, tmp_path: Path) -> None:
    tool = BY_NAME["etcd"]
    (path,) = site.publish(tool)
    site.cut[path] = 1
    get(tool, tmp_path / "bin")
    assert site.asked.count(path) == 2
    site.cut[path] = download.ATTEMPTS
    with pytest.raises(DownloadError, match="IncompleteRead"):
        get(tool, tmp_path / "bin")


def test_a_slow_download_is_given_up(
    site: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "STALL_TIMEOUT_S", 0.3)
    tool = BY_NAME["etcd"]
    site.slow.update(site.publish(tool))
    with pytest.raises(DownloadError, match="timed out"):
        get(tool, tmp_path / "bin")
    site.slow.clear()
    monkeypatch.setattr(download, "SLOW_AFTER_S", 0.0)
    monkeypatch.setattr(download, "SLOW_BYTES_PER_S", 1e15)
    with pytest.raises(DownloadError, match="slow"):
        get(tool, tmp_path / "bin")


@pytest.mark.parametrize("target", ["http://example.com/x", "file:///etc/passwd"])
def test_a_redirect_to_an_address_that_is_not_https_is_refused(
    target: str, site: Upstream, tmp_path: Path
) -> None:
    tool = BY_NAME["etcd"]
    site.redirects = dict.fromkeys(site.publish(tool), target)
    with pytest.raises(DownloadError, match=r"not https|not allowed"):
        get(tool, tmp_path / "bin")


def test_a_site_that_does_not_answer_is_not_reachable(site: Upstream) -> None:
    site.files["/there"] = b""
    there = f"{site.url}/there"
    assert reachable([there, f"{site.url}/missing", "http://127.0.0.1:9/", "ftp://x/"]) == {there}


def test_downloaded_tools_are_cached_and_need_no_go(
    site: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ensuring, "find_go", lambda _: pytest.fail("Go is not needed"))
    for name in ("kubernetes", "etcd", "pulumi"):
        site.publish(BY_NAME[name])
    made = ensure(Console(quiet=True), "kubernetes", "etcd", "pulumi")
    assert set(made.sources.values()) == {"downloaded"}
    site.files.clear()
    again = ensure(Console(quiet=True), "kubernetes", "etcd", "pulumi")
    assert set(again.sources.values()) == {"cache"} and again.binaries == made.binaries


def test_what_cannot_be_downloaded_is_built_and_the_reason_is_told(
    site: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []

    def build(
        _self: Builder, tool: Tool, _package: str, _out: Path, log: Path, _report: object
    ) -> None:
        built.append(tool.name)
        raise BuildError(tool, "go build", log)

    monkeypatch.setattr(Builder, "_compile", build)
    monkeypatch.setattr(ensuring, "find_go", lambda _: Path("/bin/false"))
    (path,) = site.publish(BY_NAME["etcd"])
    site.files[path] += b"more"
    out = io.StringIO()
    with pytest.raises(ToolchainError, match="etcd"):
        ensure(Console(file=out, width=400), "etcd")
    assert built == ["etcd"] and "SHA-256 is" in out.getvalue()
    site.files.clear()
    out = io.StringIO()
    with pytest.raises(ToolchainError, match="etcd"):
        ensure(Console(file=out, width=400), "etcd")
    assert "not reachable; building etcd from Go modules" in out.getvalue()
