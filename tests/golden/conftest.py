"""Golden files: what the program renders, committed so that a reviewer sees what a change changes.

`pytest tests/golden --update-golden` writes them anew.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

FOLDER = Path(__file__).parent

Compare = Callable[[str, list[Any]], None]


class _PlainDumper(yaml.SafeDumper):
    """YAML without aliases; text of several lines as such."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_PlainDumper.add_representer(str, _text)


def as_text(documents: list[Any]) -> str:
    """Documents as sorted, readable YAML."""
    return yaml.dump_all(documents, Dumper=_PlainDumper, sort_keys=True, width=100)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Compare:
    """Compares documents with the file of a name in this folder, or writes it."""

    def compare(name: str, documents: list[Any]) -> None:
        path = FOLDER / name
        text = as_text(documents)
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            return
        assert path.exists(), f"{path} is missing: pytest tests/golden --update-golden"
        before = path.read_text()
        difference = difflib.unified_diff(
            before.splitlines(), text.splitlines(), "committed", "rendered", lineterm="", n=2
        )
        assert before == text, "\n".join([f"{name} differs:", *list(difference)[:60]])

    return compare
