"""Values that Kubernetes or AWS would reject or misread later are config issues."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infra.config import parse, stack_values
from infra.config.__main__ import main
from infra.domain import naming
from tests.unit.infra.example_eks import stack_values as eks

Values = dict[str, Any]
Edit = Callable[[Values], object]


def labels(index: int, **found: str) -> Edit:
    """Set labels of a pool."""
    return lambda s: s["nodePools"][index].update(labels=found)


def secret(remote_key: str) -> Edit:
    """Give the first team a secret from an external store."""
    one = {"name": "hub", "env": ["HF_TOKEN"], "remoteKey": remote_key}
    return lambda s: (
        s["teams"][0].update(secrets=[one]),
        s["operators"].update(externalSecrets={"provided": False}),
    )


def test_longest_names_and_usual_labels_and_secrets_are_accepted() -> None:
    values = copy.deepcopy(eks())
    labels(0, **{"acme.example.com/rack": "r-1", "owner": "nlp_team"})(values)
    secret("training/production/tracking_v2")(values)
    values["teams"].append(
        {
            "name": "t" * 58,
            "tier": "research",
            "quota": {"cpu": "500m", "memory": "1Mi", "gpus": 0},
        }
    )
    values["taintKey"] = "acme.example.com/dedicated"
    values["aws"]["tags"] = {"cost center": "nlp/r&d".replace("&", "+"), "owner": "a@b.example"}
    config = parse(values)
    assert naming.is_dns_label(naming.namespace(config.teams[-1].name))


TEXTS = {
    "a mapping as a key": ("  ? {a: 1}\n  : b\n", "found unhashable key"),
    "a list that holds itself": ("  cohort: &a [*a]\n", "Circular reference detected"),
    "lists too deep": (
        f"  cohort: {'[' * 2000}{']' * 2000}\n",
        "more than 100 nested lists or mappings",
    ),
    "a date of no calendar": ("  cohort: 2020-99-99\n", "month must be in 1..12"),
    "a number without an end": (f"  cohort: {'9' * 5000}\n", "unreadable value"),
    "a set": ("  cohort: !!set {a}\n", "could not determine a constructor"),
    "one key in two forms": ("  cohort: a\n  trainyard:cohort: b\n", "set twice, as cohort and as"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_unparsable_stack_file_is_reported_in_one_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, expected = TEXTS[name]
    file = tmp_path / "Pulumi.odd.yaml"
    file.write_text(f"config:\n  taintKey: x\n{text}")
    assert main(["check", str(file)]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert expected in line
    assert "; must be a YAML file; " in line or "; keys must be unique; " in line


def test_yaml_anchors_are_accepted(tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.x.yaml"
    file.write_text(
        "config:\n  nodePools:\n  - &first {name: a, max: 2, zone: z}\n  - {<<: *first, name: b}\n"
    )
    assert stack_values(file)["nodePools"][1] == {"name": "b", "max": 2, "zone": "z"}
