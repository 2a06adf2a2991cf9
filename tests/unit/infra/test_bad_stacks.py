"""Mistakes in stack files: each is one issue, all are reported at once."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from infra.config import parse, stack_values
from infra.config.__main__ import main
from tests.golden.example_runs import IMAGE
from tests.golden.example_runs import stack_values as example
from tests.unit.infra.config_issues import codes, issues


def test_example_stack_is_valid() -> None:
    assert parse(example()).images == {"trainer": IMAGE}


def test_all_invalid_values_are_reported_at_once_and_then_all_rules() -> None:
    values = copy.deepcopy(example())
    values["nodePools"][0].update(min="1", instanceTypes=["m6i.xlarge"])
    values["teams"][0].update(name="Bad Name", guaranteed={"spto": 1})
    values["surprise"] = True
    values["cohort"] = "AKIA0123456789ABCDEF"
    assert codes(issues(values)) == [
        "cohort: dns-label",
        "nodePools[0].min: wrong-type",
        "teams[0].name: dns-label",
        "surprise: unknown-key",
        "cohort: plaintext-secret",
    ]
    values["nodePools"][0]["min"], values["teams"][0]["name"] = 9, "nlp"
    del values["surprise"], values["cohort"]
    values["cohort"] = "training"
    assert codes(issues(values)) == [
        "nodePools[0].min: min-above-max",
        "nodePools[0].instanceTypes[0]: type-without-gpu",
        "teams[0].guaranteed.spto: unknown-name",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("config: [", "YAML error at line 1, column 10"),
        ("config:\n  a: 1\n  a: 2\n", "duplicate key 'a'"),
        ("", "no configuration"),
        ("config:\n  aws:region: us-east-1\n", "no configuration"),
        ("name: trainyard\nruntime: python\n", "has name, runtime"),
    ],
)
def test_invalid_stack_file_is_reported_in_one_line(
    tmp_path: Path, text: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "Pulumi.odd.yaml"
    file.write_text(text)
    assert main(["check", str(file)]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err.splitlines()) == 1
    assert shown.err.startswith("Pulumi.odd.yaml: ")
    assert expected in shown.err


def test_missing_stack_file_is_reported_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(tmp_path / "Pulumi.none.yaml")]) == 1
    assert capsys.readouterr().err == (
        "Pulumi.none.yaml: no such file; must be a YAML file; check the name\n"
    )


@pytest.mark.parametrize(
    "file",
    [
        "Pulumi.local.yaml",
        "Pulumi.dev.yaml",
        "Pulumi.prod.yaml",
        "tests/golden/existing-cluster.yaml",
    ],
)
def test_committed_stacks_are_valid(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(__file__).resolve().parents[3]
    assert main(["check", str(root / file)]) == 0
    assert capsys.readouterr().out == "ok\n"


def test_config_keys_of_other_namespaces_are_ignored(tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.x.yaml"
    file.write_text("config:\n  aws:region: us-east-1\n  trainyard:cohort: c\nencryptionsalt: v1\n")
    assert stack_values(file) == {"cohort": "c"}
