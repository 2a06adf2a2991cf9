"""What the wheel says of itself: its version, and what the extra `cli` installs."""

from __future__ import annotations

import ast
import re
import runpy
import sys
import tomllib
from importlib import metadata

import pytest

from infra.domain.published_record import VERSION
from ops import installed
from tools.imports import ROOT, files, imported

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OPTIONAL = {"botocore", "matplotlib", "prometheus_client", "pulumi"}
"""Of commands that read a stack file, draw a picture or sign requests, which say so, and of what serves metrics in
the cluster, in an image of its own."""


def test_the_published_record_names_the_version_of_the_wheel() -> None:
    assert PROJECT["version"] == VERSION


def test_the_extra_installs_what_commands_import() -> None:
    asked = {re.split(r"[^\w.-]", one)[0] for one in PROJECT["optional-dependencies"]["cli"]}
    tops = {name.partition(".")[0] for path in files("ops") for name in imported(path)}
    own = {path.name for path in ROOT.iterdir() if path.is_dir()}
    others = tops - own - OPTIONAL - {"torch", *sys.stdlib_module_names}
    assert {"pyyaml" if name == "yaml" else name for name in others} <= asked


def test_a_missing_package_is_one_line_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "ops.__main__", raising=False)
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setattr(metadata, "version", lambda _: "0.1.0")
    assert installed.main() == 2
    said = capsys.readouterr().err
    assert said == (
        'error: trainyard 0.1.0: rich.console is not installed; run: pip install "trainyard[cli]"\n'
    )


def test_a_wheel_has_every_package_of_its_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    setuptools = pytest.importorskip("setuptools")
    given: dict[str, object] = {}
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(setuptools, "setup", given.update)
    runpy.run_path(str(ROOT / "setup.py"))
    packages = given["packages"]
    assert isinstance(packages, list)
    for room in ("infra", "ops", "trainer", "training", "trainyard"):
        top = "" if room == "trainyard" else "trainyard_cli."
        folders = {path.parent.relative_to(ROOT) for path in files(room)}
        names = {f"{top}{'.'.join(folder.parts)}" for folder in folders}
        assert names <= {*packages}, names - {*packages}


def test_the_library_is_written_for_python_3_10() -> None:
    for path in files("trainyard"):
        ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=(3, 10))
