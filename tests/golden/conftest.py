"""Golden files: what the program renders, committed so that a reviewer sees what a change changes.

`pytest tests/golden --update-golden` refreshes them. `stack_files` and `manifest_files` describe
how resources that several stacks or launchers have are stored once.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

FOLDER = Path(__file__).parent

Compare = Callable[[str, list[Any]], None]


class InlineList(list[Any]):
    """A list that YAML shows on one line."""


class _PlainDumper(yaml.CSafeDumper):
    """YAML without aliases; text of several lines as a block."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _PlainDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


def _inline(dumper: _PlainDumper, value: InlineList) -> yaml.SequenceNode:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=True)


_PlainDumper.add_representer(str, _text)
_PlainDumper.add_representer(InlineList, _inline)


def as_text(documents: list[Any], *, sort_keys: bool = True) -> str:
    """Documents as readable YAML."""
    return yaml.dump_all(documents, Dumper=_PlainDumper, sort_keys=sort_keys, width=100)


def read_folder(name: str) -> dict[str, list[Any]]:
    """The documents of every YAML file in a folder of this one, by path without suffix."""
    return {
        str(path.relative_to(FOLDER / name).with_suffix("")): list(
            yaml.load_all(path.read_text(encoding="utf-8"), yaml.CSafeLoader)
        )
        for path in sorted((FOLDER / name).rglob("*.yaml"))
    }


def write_folder(name: str, texts: Mapping[str, str]) -> None:
    """Replace every YAML file in a folder of this one."""
    for path in (FOLDER / name).rglob("*.yaml"):
        path.unlink()
    for file, text in texts.items():
        path = FOLDER / name / f"{file}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def assert_same(name: str, committed: list[Any], rendered: list[Any]) -> None:
    """Fail with the differences of the documents' text, both in full."""
    if json.dumps(committed, sort_keys=True) == json.dumps(rendered, sort_keys=True):
        return
    before, after = (as_text(documents).splitlines() for documents in (committed, rendered))
    difference = difflib.unified_diff(before, after, "committed", "rendered", lineterm="", n=2)
    pytest.fail("\n".join([f"{name} differs (--update-golden):", *list(difference)[:60]]))


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Compare:
    """Compare documents with a file of this folder, or write it."""

    def compare(name: str, documents: list[Any]) -> None:
        path = FOLDER / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(as_text(documents), encoding="utf-8")
        assert path.exists(), f"{path} is missing: pytest tests/golden --update-golden"
        committed = list(yaml.load_all(path.read_text(encoding="utf-8"), yaml.CSafeLoader))
        assert_same(name, committed, documents)

    return compare
