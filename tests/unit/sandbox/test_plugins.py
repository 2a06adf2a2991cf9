"""Official plugins win where there are any; a stand-in is written where there are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox import paths, plugins
from sandbox.toolchain import Toolchain
from tests.unit.snapshots import Snapshot

AWS = plugins.CLOUD[0]
TOOLS = Toolchain({"pulumi": Path("pulumi")}, {}, {})


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> paths.State:
    """A sandbox on a machine without plugins that cannot reach the download site."""
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "user"))
    monkeypatch.setattr(plugins, "_site_reachable", lambda: False)
    return paths.State(tmp_path / "home")


def official(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    binary = folder / AWS.binary
    binary.write_bytes(b"\x7fELF" + bytes(8192))
    binary.chmod(0o755)
    return binary


def choose(state: paths.State, asked: str = "", messages: list[str] | None = None) -> str:
    return plugins.install_plugin(
        AWS, state, TOOLS, asked, (messages if messages is not None else []).append
    )


def test_unavailable_official_plugin_selects_the_stand_in_and_reports_it_once(
    state: paths.State, texts: Snapshot
) -> None:
    messages: list[str] = []
    assert choose(state, messages=messages) == choose(state, messages=messages) == "standin"
    texts.check("no official plugin", messages)
    script = (AWS.place(state) / AWS.binary).read_text()
    assert "-m sandbox.aws_preview aws" in script


def test_an_official_plugin_on_path_or_of_the_user_replaces_the_stand_in(
    state: paths.State, tmp_path: Path
) -> None:
    choose(state)
    theirs = official(tmp_path / "user/plugins" / AWS.folder)
    assert choose(state) == "official"
    assert (AWS.place(state) / AWS.binary).resolve() == theirs

    official(tmp_path / "path")
    assert choose(state) == "official"
    assert not AWS.place(state).exists()


def test_stand_in_can_be_selected_without_removing_the_official_plugin(
    state: paths.State, tmp_path: Path
) -> None:
    theirs = official(tmp_path / "user/plugins" / AWS.folder)
    assert choose(state) == "official"
    assert choose(state, asked="standin") == "standin"
    assert theirs.stat().st_size > 8192


def test_requested_official_plugin_that_is_unavailable_is_an_error(
    state: paths.State, monkeypatch: pytest.MonkeyPatch, texts: Snapshot
) -> None:
    with pytest.raises(plugins.SetupError, match=r"^SANDBOX_PROVIDER=official: ") as missing:
        choose(state, asked="official")
    monkeypatch.setenv("SANDBOX_PROVIDER", "real")
    with pytest.raises(plugins.SetupError, match=r"^SANDBOX_PROVIDER: got 'real'") as unknown:
        plugins.requested_provider()
    texts.check("invalid requests", [str(missing.value), str(unknown.value)])


def test_plugin_versions_match_the_installed_sdks() -> None:
    pins = (paths.PROJECT / "requirements.in").read_text()
    for plugin in plugins.CLOUD:
        assert f"pulumi-{plugin.package}=={plugin.version}\n" in pins
