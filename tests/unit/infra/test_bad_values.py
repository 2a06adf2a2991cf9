"""Values that Kubernetes or AWS would refuse later, or take for something else, are refused at once."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infra.config import ConfigError, parse, stack_values
from infra.config.__main__ import main
from infra.domain import naming
from tests.golden.example_runs import stack_values as existing
from tests.unit.infra.example_eks import stack_values as eks

Values = dict[str, Any]
Edit = Callable[[Values], object]

SIZE = "a size of 1Mi or more, below 8192Pi; correct its unit, of which m is a thousandth"
LABEL = "letters, digits and any of -_. between them, at most 63; correct it"
KEY = (
    "NAME or DOMAIN/NAME: letters, digits and any of -_. between them, a name of at most 63; "
    "rename it"
)
TAINT = (
    "a key of your own: spot marks spot nodes, and domains of Kubernetes and its autoscalers are "
    "theirs; rename it"
)
TAG = "letters, digits, spaces and any of _.:/=+-@, at most 256; correct it"
IMAGE = (
    "REPOSITORY@sha256:DIGEST (64 hexadecimal digits); a tag can be moved, so pin the digest that "
    "the registry shows"
)
REPOSITORY = (
    "a registry or a repository in one, such as registry.example.com/training, without tag or "
    "digest; correct it"
)
DIGEST = "@sha256:" + "1" * 64


def labels(index: int, **found: str) -> Edit:
    """Gives a pool labels."""
    return lambda s: s["nodePools"][index].update(labels=found)


def secret(remote_key: str) -> Edit:
    """A secret of the first team that comes from a store."""
    one = {"name": "hub", "env": ["HF_TOKEN"], "remoteKey": remote_key}
    return lambda s: (
        s["teams"][0].update(secrets=[one]),
        s["operators"].update(externalSecrets={"provided": False}),
    )


def fabric(**facts: Any) -> Edit:
    """What is known of the network of the CPU pool."""
    return lambda s: s["nodePools"][2].update(fabric=facts)


ON_EXISTING: dict[str, tuple[Edit, str]] = {
    "a team whose namespace has no room": (
        lambda s: s["teams"].append(s["teams"][0] | {"name": "t" * 59, "guaranteed": {}}),
        f"teams[2].name: got '{'t' * 56}...; allowed at most 58 characters, for its namespace is "
        "team-NAME; shorten it",
    ),
    "a taint of spaces": (
        lambda s: s.update(taintKey="for gpus"),
        f"taintKey: got 'for gpus'; allowed {KEY}",
    ),
    "the taint of spot nodes": (
        lambda s: s.update(taintKey="spot"),
        f"taintKey: got 'spot'; allowed {TAINT}",
    ),
    "a taint of Kubernetes": (
        lambda s: s.update(taintKey="node.kubernetes.io/unreachable"),
        f"taintKey: got 'node.kubernetes.io/unreachable'; allowed {TAINT}",
    ),
    "a label's value of two lines": (
        labels(0, rack="a\nb"),
        f"nodePools[0].labels.rack: got 'a\\nb'; allowed {LABEL}",
    ),
    "a label's key of a path": (
        labels(0, **{"a/b/c": "d"}),
        f"nodePools[0].labels.a/b/c: got 'a/b/c'; allowed {KEY}",
    ),
    "the only team": (
        lambda s: s.update(teams=[s["teams"][0] | {"tier": "reserch"}]),
        "teams[0].tier: got 'reserch'; allowed 'research' or 'production'; did you mean research?",
    ),
    "more nodes than a cluster has": (
        lambda s: s["nodePools"][0].update(max=2**63),
        "nodePools[0].max: got 9223372036854775808; allowed at most 100000; change it",
    ),
    "memory in thousandths of a byte": (
        lambda s: s["teams"][0]["quota"].update(memory="900m"),
        f"teams[0].quota.memory: got '900m'; allowed {SIZE}",
    ),
    "a volume beyond 64 bits": (
        lambda s: s["storage"].update(datasets="9000Pi"),
        f"storage.datasets: got '9000Pi'; allowed {SIZE}",
    ),
    "cores in bytes": (
        lambda s: s["teams"][0]["quota"].update(cpu="4Ti"),
        "teams[0].quota.cpu: got '4Ti'; allowed 1m to 1000000 cores; correct it",
    ),
    "a registry with a tag after a colon": (
        lambda s: s.update(registries=["registry.example.com/trainer:v1"], images={}),
        f"registries[0]: got 'registry.example.com/trainer:v1'; allowed {REPOSITORY}",
    ),
    "an image with an empty part": (
        lambda s: s.update(images={"trainer": f"registry.example.com//trainer{DIGEST}"}),
        f"images.trainer: got 'registry.example.com//trainer@sha256:{'1' * 19}...; allowed {IMAGE}",
    ),
    "an interface with a space": (
        fabric(interface="eth0 eth1"),
        "nodePools[2].fabric.interface: got 'eth0 eth1'; allowed an interface such as eth0; "
        "correct it",
    ),
    "an unknown form of version": (
        lambda s: (
            s["cluster"].update(version="1.\N{SUPERSCRIPT TWO}"),
            s["operators"].update(kueue={"provided": False}),
        ),
        "cluster.version: got '1.\N{SUPERSCRIPT TWO}'; allowed a version such as 1.35; correct it",
    ),
    "a key that is a number": (
        lambda s: s["images"].update({1: f"registry.example.com/other{DIGEST}"}),
        "images[1]: got 1; allowed text (put it in quotes if it looks like a number); change it",
    ),
    "a key of two lines": (
        lambda s: s.update({"a\nb": 1}),
        "a\\nb: got an unknown key; ",
    ),
}

ON_EKS: dict[str, tuple[Edit, str]] = {
    "all secrets of the account": (
        secret("*"),
        "teams[0].secrets[0].remoteKey: got '*'; allowed letters, digits and any of /_+=.@-; name "
        "one secret",
    ),
    "a variable of IAM as a secret": (
        secret("${aws:username}"),
        "teams[0].secrets[0].remoteKey: got '${aws:username}'; allowed letters, digits and any of "
        "/_+=.@-; name one secret",
    ),
    "a label that kubelets refuse": (
        labels(0, **{"node-role.kubernetes.io/gpu": "yes"}),
        "nodePools[0].labels.node-role.kubernetes.io/gpu: got a label of a domain that is not "
        "yours; allowed labels without a domain or of your own, for nodes refuse the others; "
        "rename it",
    ),
    "a tag of two lines": (
        lambda s: s["aws"].update(tags={"owner": "a\nb"}),
        f"aws.tags.owner: got 'a\\nb'; allowed {TAG}",
    ),
    "a tag's key with a sign": (
        lambda s: s["aws"].update(tags={"${owner}": "a"}),
        f"aws.tags.${{owner}}: got '${{owner}}'; allowed {TAG}",
    ),
    "more tags than AWS takes": (
        lambda s: s["aws"].update(tags={f"k{n}": "v" for n in range(41)}),
        "aws.tags: got a mapping (k0, k1, k2, k3, k4, k5, k6, k7, k8, k9, k10, k...; allowed at "
        "most 40 of them; change it",
    ),
    "a role in letters that IAM lacks": (
        lambda s: s["cluster"].update(admins=["arn:aws:iam::111122223333:role/\u00e9quipe"]),
        "cluster.admins[0]: got 'arn:aws:iam::111122223333:role/\u00e9quipe'; allowed the ARN of a "
        "role, such as arn:aws:iam::111122223333:role/platform-admin; correct it",
    ),
    "checkpoints that wait for ever": (
        lambda s: s["storage"]["buckets"].update(oldCheckpointDays=4000),
        "storage.buckets.oldCheckpointDays: got 4000; allowed at most 3650; change it",
    ),
}


def lines(values: Values, edit: Edit) -> tuple[str, ...]:
    """The mistakes of a spoilt stack."""
    values = copy.deepcopy(values)
    edit(values)
    with pytest.raises(ConfigError) as caught:
        parse(values)
    return caught.value.lines


@pytest.mark.parametrize("name", ON_EXISTING)
def test_a_value_that_kubernetes_would_refuse_is_one_line(name: str) -> None:
    edit, expected = ON_EXISTING[name]
    [line] = lines(existing(), edit)
    assert line.startswith(expected) if expected.endswith("; ") else line == expected


@pytest.mark.parametrize("name", ON_EKS)
def test_a_value_that_aws_would_refuse_or_widen_is_one_line(name: str) -> None:
    edit, expected = ON_EKS[name]
    assert lines(eks(), edit) == (expected,)


def test_the_longest_names_and_usual_labels_and_secrets_are_taken() -> None:
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
    "lists too deep": (f"  cohort: {'[' * 2000}{']' * 2000}\n", "too deep to follow"),
    "a date of no calendar": ("  cohort: 2020-99-99\n", "month must be in 1..12"),
    "a number without an end": (f"  cohort: {'9' * 5000}\n", "a value that cannot be read"),
    "a set": ("  cohort: !!set {a}\n", "could not determine a constructor"),
    "one key in two forms": ("  cohort: a\n  trainyard:cohort: b\n", "it twice, as cohort and as"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_text_that_cannot_be_a_stack_is_one_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, expected = TEXTS[name]
    file = tmp_path / "Pulumi.odd.yaml"
    file.write_text(f"config:\n  taintKey: x\n{text}")
    assert main(["check", str(file)]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert expected in line and "; allowed " in line


def test_what_pools_have_in_common_may_be_written_once(tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.x.yaml"
    file.write_text(
        "config:\n  nodePools:\n  - &first {name: a, max: 2, zone: z}\n  - {<<: *first, name: b}\n"
    )
    assert stack_values(file)["nodePools"][1] == {"name": "b", "max": 2, "zone": "z"}


def test_a_number_as_a_key_hides_no_other_mistake() -> None:
    image = f"registry.example.com/trainer{DIGEST}"
    found = lines(existing(), lambda s: s.update(images={1: image}, validation={"image": "x"}))
    assert [line.split(":")[0] for line in found] == ["images[1]", "validation.image"]
