"""Schemas and reference pages match the models, and committed files validate."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tools.reference import pages
from tools.reference.__main__ import files
from tools.reference.pages import PAGES
from tools.reference.schemas import SCHEMAS, field_docs

ROOT = Path(__file__).resolve().parents[2]

SCHEMA_OF = {
    "Pulumi.*.yaml": "stack-file",
    "tests/golden/existing-cluster.yaml": "stack-file",
    "training/runs/*.yaml": "run-file",
    "training/configs/*.yaml": "trainer-configuration",
}


def committed() -> Iterator[tuple[Path, str]]:
    for pattern, name in SCHEMA_OF.items():
        for path in sorted(ROOT.glob(pattern)):
            yield path.relative_to(ROOT), name


@cache
def schema(name: str) -> dict[str, Any]:
    text = (ROOT / f"docs/schemas/{name}.schema.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.mark.parametrize("path", files())
def test_generated_files_are_current(path: str, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        (ROOT / path).write_text(files()[path], encoding="utf-8")
    found = (ROOT / path).read_text(encoding="utf-8")
    assert found == files()[path], "run `make reference`"


@pytest.mark.parametrize("name", PAGES)
def test_every_key_has_a_description(name: str) -> None:
    rows = re.findall(r"^- `.+", pages.text(name), re.MULTILINE)
    assert rows and [row for row in rows if not re.search(r"[`)]: \S", row)] == []


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_are_valid(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schema(name))


@pytest.mark.parametrize(("path", "name"), list(committed()), ids=str)
def test_committed_files_follow_their_schema(path: Path, name: str) -> None:
    validator = jsonschema.Draft202012Validator(schema(name))
    for document in yaml.safe_load_all((ROOT / path).read_text(encoding="utf-8")):
        assert [error.message for error in validator.iter_errors(document)] == []


@pytest.mark.parametrize(("path", "name"), list(committed()), ids=str)
def test_committed_files_reference_their_schema_for_editors(path: Path, name: str) -> None:
    first = (ROOT / path).read_text(encoding="utf-8").partition("\n")[0]
    prefix, _, named = first.partition("=")
    assert prefix == "# yaml-language-server: $schema"
    assert (ROOT / path).parent.joinpath(named).resolve() == (
        ROOT / f"docs/schemas/{name}.schema.json"
    )


@pytest.mark.parametrize(
    ("name", "path", "wrong"),
    [
        ("stack-file", ("config", "trainyard:nodePool"), []),
        ("stack-file", ("config", "trainyard:scheduler"), "slurm"),
        ("run-file", ("gpus",), 1),
        ("run-file", ("nodes",), "2"),
        ("trainer-configuration", ("model", "layer"), 4),
        ("trainer-configuration", ("steps",), None),
    ],
)
def test_schemas_reject_unknown_keys_and_wrong_types(
    name: str, path: tuple[str, ...], wrong: Any
) -> None:
    file = next(file for file, of in committed() if of == name)
    document = next(yaml.safe_load_all((ROOT / file).read_text(encoding="utf-8")))
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = wrong
    assert not jsonschema.Draft202012Validator(schema(name)).is_valid(document)


def test_stack_file_may_omit_the_prefix_and_contain_provider_keys() -> None:
    document = yaml.safe_load((ROOT / "Pulumi.local.yaml").read_text(encoding="utf-8"))
    plain = {key.partition(":")[2]: value for key, value in document["config"].items()}
    validator = jsonschema.Draft202012Validator(schema("stack-file"))
    assert validator.is_valid({"config": plain | {"aws:region": "us-east-1"}})
    assert not validator.is_valid({"config": {k: v for k, v in plain.items() if k != "teams"}})


def test_field_docstrings_are_inherited() -> None:
    class Base:
        a: int
        """Of the
        base."""
        b: int

    class Derived(Base):
        b: int
        """Of the class."""

    assert field_docs(Derived) == {"a": "Of the base.", "b": "Of the class."}
