"""Provider plugins of the sandbox."""

from __future__ import annotations

from pathlib import Path

from sandbox import environment, paths


def test_a_stand_in_takes_the_place_of_each_plugin_of_a_cloud(tmp_path: Path) -> None:
    state = paths.State(tmp_path)
    for plugin in environment.CLOUD:
        earlier = plugin.binary(state)
        earlier.parent.mkdir(parents=True, exist_ok=True)
        earlier.write_bytes(b"\x7fELF\xff")
        environment.install_stand_ins(state)
        assert f"-m sandbox.aws_preview {plugin.package}" in earlier.read_text()


def test_plugin_versions_match_the_installed_sdks() -> None:
    pins = (paths.PROJECT / "requirements.in").read_text()
    for plugin in environment.CLOUD:
        assert f"pulumi-{plugin.package}=={plugin.version}\n" in pins
