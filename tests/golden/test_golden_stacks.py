"""Every resource of the committed stacks, as `python -m infra.cli.render STACK` shows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from infra.cli.render import ROOT, Record, render
from infra.config import stack_values
from infra.kubernetes import crds
from infra.observability import dashboards
from tests.golden.conftest import FOLDER, as_text, assert_same, read_folder, write_folder
from tests.golden.stack_files import expanded, folded
from tests.unit.infra.network_model import Peer, admits
from training import lineage, source, trainer_settings
from training.spec import NOT_KNOWN

STACKS = {
    "local": "Pulumi.local.yaml",
    "dev": "Pulumi.dev.yaml",
    "prod": "Pulumi.prod.yaml",
    "existing-cluster": "tests/golden/existing-cluster.yaml",
}


@pytest.fixture(autouse=True, scope="module")
def fixed_checkout() -> Iterator[None]:
    """Neither a commit, nor an edit of the trainer, nor its tuning changes what is rendered here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer_settings, "CONFIGS_FOLDER", "tests/golden/configs")
        patch.setattr(source, "digest", lambda *_: "d" * 64)
        patch.setattr(lineage, "git_commit", lambda root: "c" * 40)
        patch.setattr(lineage, "launch", lambda root: NOT_KNOWN)
        # They are files of their own.
        files = {name: f"dashboards/{name}.json" for name in dashboards.texts()}
        patch.setattr(dashboards, "texts", lambda: files)
        patch.setattr(crds, "spec", lambda name: {"file": crds.file(name).name})
        yield


@pytest.fixture(scope="module")
def rendered(fixed_checkout: None) -> dict[str, list[Record]]:
    return {stack: render(stack, stack_values(ROOT / file)) for stack, file in STACKS.items()}


@pytest.fixture(scope="module")
def committed(
    rendered: dict[str, list[Record]], request: pytest.FixtureRequest
) -> dict[str, list[Record]]:
    if request.config.getoption("--update-golden"):
        write_folder("stacks", _texts(rendered))
    return expanded(read_folder("stacks"))


def _texts(stacks: dict[str, list[Record]]) -> dict[str, str]:
    return {name: as_text(docs, sort_keys=False) for name, docs in folded(stacks).items()}


@pytest.mark.parametrize("stack", STACKS)
def test_each_stack_renders_its_committed_resources(
    stack: str, rendered: dict[str, list[Record]], committed: dict[str, list[Record]]
) -> None:
    assert_same(stack, committed[stack], rendered[stack])


def test_committed_files_are_what_a_refresh_writes(committed: dict[str, list[Record]]) -> None:
    folder = FOLDER / "stacks"
    found = {
        str(path.relative_to(folder).with_suffix("")): path.read_text(encoding="utf-8")
        for path in folder.rglob("*.yaml")
    }
    assert found == _texts({stack: committed[stack] for stack in STACKS})


def test_rendering_twice_gives_the_same_text(rendered: dict[str, list[Record]]) -> None:
    assert render("local", stack_values(ROOT / "Pulumi.local.yaml")) == rendered["local"]


@pytest.mark.parametrize("stack", STACKS)
def test_what_a_policy_lets_out_another_one_lets_in(
    stack: str, rendered: dict[str, list[Record]]
) -> None:
    found = [r["inputs"] for r in rendered[stack] if r["type"].endswith(":NetworkPolicy")]
    for policy in found:
        source = Peer(namespace=policy["metadata"]["namespace"])
        for rule in policy["spec"].get("egress", []):
            for target in _namespaces(rule.get("to", [])):
                there = [one["spec"] for one in found if one["metadata"]["namespace"] == target]
                pods = [one["podSelector"].get("matchLabels", {}) for one in there]
                for port in (one["port"] for one in rule.get("ports", [])):
                    reached = [
                        labels
                        for labels in pods
                        if admits(
                            found, Peer(namespace=target, labels=labels), source, port, "Ingress"
                        )
                    ]
                    assert not there or reached, f"{policy['metadata']} reaches {target}:{port}"


def _namespaces(peers: list[dict[str, Any]]) -> list[str]:
    """The namespaces that peers select by name."""
    selectors = [peer.get("namespaceSelector", {}).get("matchLabels", {}) for peer in peers]
    key = "kubernetes.io/metadata.name"
    return [labels[key] for labels in selectors if key in labels]
