"""The whole program under mocks: dependencies, protection and secrets."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import pulumi
import pytest

from infra.cli.render import ROOT, Record, render
from infra.cli.render import main as render_main
from infra.config import stack_values
from tests import committed
from training import lineage
from training.spec import NOT_KNOWN

STACKS = ("local", "dev", "prod")


@cache
def rendered(stack: str) -> dict[str, Record]:
    """Every resource of a committed stack, by TYPE::NAME."""
    return {f"{r['type']}::{r['name']}": r for r in committed.rendered(stack)}


def before(stack: str, record: Record) -> set[str]:
    """Everything that a resource depends on, transitively.

    A child waits for its component, and a component for what it depends on.
    """
    found: set[str] = set()
    open_ = [record]
    while open_:
        current = open_.pop()
        for name in [*current["dependsOn"], current["parent"]]:
            if name and name not in found:
                found.add(name)
                open_.append(rendered(stack)[name])
    return found


def test_local_stack_imports_no_aws_modules() -> None:
    program = (
        "import sys; from infra.cli.render import main; main(['local']); "
        "sys.exit(any(name.partition('.')[0] in ('pulumi_aws', 'pulumi_eks', 'boto3') "
        "for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def keys(value: Any) -> Iterator[str]:
    """Every key of nested inputs."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys(inner)


@pytest.mark.parametrize("stack", STACKS)
def test_nothing_is_ever_created_suspended(stack: str) -> None:
    for record in rendered(stack).values():
        # A suspended CronJob is a template; Jobs created from it are not suspended.
        inputs = dict(record["inputs"])
        if inputs.get("kind") == "CronJob":
            inputs = inputs["spec"]["jobTemplate"]
        assert "suspend" not in set(keys(inputs)), record["name"]


@pytest.mark.parametrize("stack", STACKS)
def test_managed_objects_have_no_ttl(stack: str) -> None:
    for record in rendered(stack).values():
        # Pulumi does not manage the Jobs of a CronJob.
        if not record["type"].endswith(":CronJob"):
            assert "ttlSecondsAfterFinished" not in set(keys(record["inputs"])), record["name"]


def test_added_run_version_leaves_earlier_runs_unchanged(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The record has the time of the update; the engine ignores that it differs in a later one.
    monkeypatch.setattr(lineage, "launch", lambda root: NOT_KNOWN)
    values = stack_values(ROOT / "Pulumi.local.yaml")
    text = (ROOT / "training/runs/hello.yaml").read_text()
    both = tmp_path / "both.yaml"
    both.write_text(f"{text}---\n{text.replace('version: 1', 'version: 2')}")
    alone = render("local", values)
    added = render("local", values | {"runs": [str(both)]})
    new = [r for r in added if r not in alone]
    assert [r for r in alone if r not in added] == []
    assert {r["inputs"].get("kind", "") for r in new} == {"", "ConfigMap", "JobSet"}
    assert all("hello-v2" in r["name"] for r in new)


def test_two_runs_share_one_dataset_preparation_job() -> None:
    values = stack_values(ROOT / "Pulumi.local.yaml") | {"runs": ["hello", "drill"]}
    kinds = [r["inputs"].get("kind") for r in render("local", values)]
    assert kinds.count("Job") == 1
    assert kinds.count("JobSet") == 2


def test_config_issue_ends_the_program_before_the_first_resource() -> None:
    values = copy.deepcopy(stack_values(ROOT / "Pulumi.local.yaml"))
    values["nodePools"][0]["min"] = 9
    values["runs"] = ["hallo"]
    with pytest.raises(pulumi.RunError) as caught:
        render("local", values)
    assert str(caught.value).splitlines()[0] == (
        "nodePools[0].min: 9 exceeds max (2); must be at most max; lower min or raise max"
    )
    assert "runs[0]: 'hallo' does not exist" in str(caught.value)


def test_unknown_stack_is_reported_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert render_main(["staging"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == ("Pulumi.staging.yaml: no such file; must be a YAML file; check the name\n")


def test_local_encryption_salt_is_not_committed() -> None:
    """A committed salt prevents other clones from decrypting their state."""
    # A manual `pulumi` call writes it to the work tree and `make up` removes it: check git's version.
    shown = subprocess.run(["git", "show", ":Pulumi.local.yaml"], cwd=ROOT, capture_output=True)
    if shown.returncode:
        pytest.skip("not a git checkout")
    assert b"config:" in shown.stdout
    assert b"encryptionsalt" not in shown.stdout
