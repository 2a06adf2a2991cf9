"""Every resource of the committed stacks, as `python -m infra.render STACK` shows them."""

from __future__ import annotations

import pytest

from infra.cli.render import ROOT, render
from infra.config import stack_values
from infra.observability import dashboards
from tests.golden.conftest import Compare
from training import source
from training.deployment import lineage, run_files


@pytest.fixture(autouse=True)
def the_same_checkout_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a commit, nor an edit of the trainer, nor its tuning changes what is rendered here."""
    monkeypatch.setattr(run_files, "CONFIGS_FOLDER", "tests/golden/configs")
    monkeypatch.setattr(source, "digest", lambda root: "d" * 64)
    monkeypatch.setattr(lineage, "git_commit", lambda root: "c" * 40)
    # Each has a golden file of its own.
    monkeypatch.setattr(
        dashboards,
        "rendered",
        lambda: {name: f"tests/golden/dashboards/{name}.json" for name in dashboards.DASHBOARDS},
    )


@pytest.mark.parametrize("stack", ["local", "dev", "prod"])
def test_each_stack_renders_its_committed_resources(stack: str, golden: Compare) -> None:
    golden(f"stacks/{stack}.yaml", render(stack, stack_values(ROOT / f"Pulumi.{stack}.yaml")))


def test_a_stack_on_a_cluster_that_exists_renders_its_committed_resources(golden: Compare) -> None:
    values = stack_values(ROOT / "tests/golden/existing-cluster.yaml")
    golden("stacks/existing-cluster.yaml", render("existing-cluster", values))


def test_rendering_twice_gives_the_same_text() -> None:
    values = stack_values(ROOT / "Pulumi.local.yaml")
    assert render("local", values) == render("local", values)
