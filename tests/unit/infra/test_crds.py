"""CRDs that the stack installs itself have upstream's schemas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from infra.cli import crds as command
from infra.kubernetes import crds


def open_schemas(node: Any, path: str = "") -> Iterator[str]:
    """Paths at which any field is accepted."""
    if isinstance(node, dict):
        if node.get("x-kubernetes-preserve-unknown-fields"):
            yield path
        for key, value in node.items():
            yield from open_schemas(value, f"{path}.{key}")


@pytest.mark.parametrize("name", command.SOURCES)
def test_only_pod_templates_accept_any_field(name: str) -> None:
    for version in crds.crd(name, {})["spec"]["versions"]:
        schema = version["schema"]["openAPIV3Schema"]
        assert schema["properties"]["spec"]["properties"] and "status" in schema["properties"]
        assert all(path.endswith(".template") for path in open_schemas(schema))


def test_every_file_has_a_source() -> None:
    files = crds.file("any").parent.glob("*.yaml")
    assert {path.stem for path in files} == set(command.SOURCES)


def test_the_files_name_the_version_that_the_stack_installs() -> None:
    for name, (module, path) in command.SOURCES.items():
        first = crds.file(name).read_text(encoding="utf-8").partition("\n")[0]
        assert first == f"# {path} of {module}; written by python -m infra.cli.crds"


def test_descriptions_go_and_properties_of_that_name_stay() -> None:
    described = {"description": {"type": "string", "description": "a text"}}
    pod = {"properties": {"spec": {"properties": {"containers": {"type": "array"}}}}}
    schema = {"properties": described | {"template": pod}, "description": "a kind"}
    text = yaml.safe_dump({"spec": schema}).encode()
    assert command.spec(text)["properties"] == {
        "description": {"type": "string"},
        "template": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    }
