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
from tests.golden.example_runs import stack_values as existing
from tests.unit.infra.config_issues import check_issues
from tests.unit.infra.example_eks import stack_values as eks

Values = dict[str, Any]
Edit = Callable[[Values], object]

DIGEST = "@sha256:" + "1" * 64


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


def fabric(**facts: Any) -> Edit:
    """Set network facts of the CPU pool."""
    return lambda s: s["nodePools"][2].update(fabric=facts)


ON_EXISTING: dict[str, tuple[Edit, str]] = {
    "a team whose namespace has no room": (
        lambda s: s["teams"].append(s["teams"][0] | {"name": "t" * 59, "guaranteed": {}}),
        "teams[2].name: name-too-long",
    ),
    "a taint of spaces": (
        lambda s: s.update(taintKey="for gpus"),
        "taintKey: label-key",
    ),
    "the taint of spot nodes": (
        lambda s: s.update(taintKey="spot"),
        "taintKey: taint-key",
    ),
    "a taint of Kubernetes": (
        lambda s: s.update(taintKey="node.kubernetes.io/unreachable"),
        "taintKey: taint-key",
    ),
    "a label's value of two lines": (
        labels(0, rack="a\nb"),
        "nodePools[0].labels.rack: label-value",
    ),
    "a label's key of a path": (
        labels(0, **{"a/b/c": "d"}),
        "nodePools[0].labels.a/b/c: label-key",
    ),
    "the only team": (
        lambda s: s.update(teams=[s["teams"][0] | {"tier": "reserch"}]),
        "teams[0].tier: unknown-value",
    ),
    "more nodes than a cluster has": (
        lambda s: s["nodePools"][0].update(max=2**63),
        "nodePools[0].max: out-of-range",
    ),
    "memory in thousandths of a byte": (
        lambda s: s["teams"][0]["quota"].update(memory="900m"),
        "teams[0].quota.memory: out-of-range",
    ),
    "a volume beyond 64 bits": (
        lambda s: s["storage"].update(datasets="9000Pi"),
        "storage.datasets: out-of-range",
    ),
    "cores in bytes": (
        lambda s: s["teams"][0]["quota"].update(cpu="4Ti"),
        "teams[0].quota.cpu: out-of-range",
    ),
    "a registry with a tag after a colon": (
        lambda s: s.update(registries=["registry.example.com/trainer:v1"], images={}),
        "registries[0]: registry",
    ),
    "an image with an empty part": (
        lambda s: s.update(images={"trainer": f"registry.example.com//trainer{DIGEST}"}),
        "images.trainer: image-reference",
    ),
    "an interface with a space": (
        fabric(interface="eth0 eth1"),
        "nodePools[2].fabric.interface: interface",
    ),
    "an unknown form of version": (
        lambda s: (
            s["cluster"].update(version="1.\N{SUPERSCRIPT TWO}"),
            s["operators"].update(kueue={"provided": False}),
        ),
        "cluster.version: kubernetes-version",
    ),
    "a key that is a number": (
        lambda s: s["images"].update({1: f"registry.example.com/other{DIGEST}"}),
        "images[1]: wrong-type",
    ),
    "a key of two lines": (
        lambda s: s.update({"a\nb": 1}),
        "a\nb: unknown-key",
    ),
}

ON_EKS: dict[str, tuple[Edit, str]] = {
    "all secrets of the account": (
        secret("*"),
        "teams[0].secrets[0].remoteKey: remote-key",
    ),
    "a variable of IAM as a secret": (
        secret("${aws:username}"),
        "teams[0].secrets[0].remoteKey: remote-key",
    ),
    "a label that kubelets refuse": (
        labels(0, **{"node-role.kubernetes.io/gpu": "yes"}),
        "nodePools[0].labels.node-role.kubernetes.io/gpu: reserved-domain",
    ),
    "a tag of two lines": (
        lambda s: s["aws"].update(tags={"owner": "a\nb"}),
        "aws.tags.owner: tag",
    ),
    "a tag's key with a sign": (
        lambda s: s["aws"].update(tags={"${owner}": "a"}),
        "aws.tags.${owner}: tag",
    ),
    "more tags than AWS takes": (
        lambda s: s["aws"].update(tags={f"k{n}": "v" for n in range(41)}),
        "aws.tags: too-many",
    ),
    "a role in letters that IAM lacks": (
        lambda s: s["cluster"].update(admins=["arn:aws:iam::111122223333:role/\u00e9quipe"]),
        "cluster.admins[0]: role-arn",
    ),
    "checkpoints that wait for ever": (
        lambda s: s["storage"]["buckets"].update(oldCheckpointDays=4000),
        "storage.buckets.oldCheckpointDays: out-of-range",
    ),
}


def spoilt(values: Values, edit: Edit) -> Values:
    """Return an edited copy of a stack."""
    values = copy.deepcopy(values)
    edit(values)
    return values


@pytest.mark.parametrize("name", ON_EXISTING)
def test_value_that_kubernetes_rejects_is_one_issue(name: str) -> None:
    edit, expected = ON_EXISTING[name]
    check_issues("values", name, spoilt(existing(), edit), expected)


@pytest.mark.parametrize("name", ON_EKS)
def test_value_that_aws_rejects_or_widens_is_one_issue(name: str) -> None:
    edit, expected = ON_EKS[name]
    check_issues("values", name, spoilt(eks(), edit), expected)


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
