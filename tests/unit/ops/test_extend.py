"""`trainyard run extend`: what the new version is, and what it says of the learning rate, without a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.config import stack_values
from infra.domain import naming
from infra.domain.published_record import from_text, to_text
from infra.tenancy import team
from ops.cluster import Kind
from ops.objects import Json
from ops.submission import create, render
from tests.unit.ops.test_ops_commands import FakeCluster, call
from training import plan
from trainyard.contract import PROGRAM_FILE, TRAINER_CONFIG_FILE

ROOT = Path(__file__).resolve().parents[3]
ADA = "ada@example.com"
EXACT = "equal settings give the losses of a run that had 400 steps from the start"


class Cluster(FakeCluster):
    """Knows who asks; creates nothing."""

    def create(self, kind: Kind, manifest: Json, **_: Any) -> Json:
        assert kind.kind == "SelfSubjectReview"
        return {"status": {"userInfo": {"username": ADA}}}


def world(*settings: str, condition: str = "Completed", submitted: bool = True) -> Cluster:
    """A cluster with the run `hello` of 200 steps, which has ended."""
    planned = plan.make(
        stack_values(ROOT / "Pulumi.local.yaml") | {"runs": []}, "local", ROOT, preview=True
    )
    text = to_text(planned.platform, "research", planned.images)
    document = render.read(
        ROOT / "training/runs/hello.yaml", ("overrides.steps=200", *settings), ROOT
    )
    found = render.render(document, from_text(text), ADA).manifests
    manifests = create.with_source(found, document.values) if submitted else found
    run = manifests[-1] | {"status": {"conditions": [{"type": condition, "status": "True"}]}}
    record = team.platform_record("research", text)
    maps = [record, *(one for one in manifests if one["kind"] == "ConfigMap")]
    return Cluster(jobsets=[run], configmaps=maps)


def run_id(cluster: Cluster) -> str:
    return str(cluster._items["jobsets"][0]["metadata"]["name"])


def test_the_next_version_continues_the_finished_run_with_more_steps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = world("overrides.schedule.kind=constant")
    assert (
        call(monkeypatch, cluster, *["run", "extend", "hello", "--steps", "400", "--render"]) == 0
    )
    made = list(yaml.safe_load_all(capsys.readouterr().out))
    assert made[-1]["metadata"]["labels"][naming.RUN_VERSION] == "2"
    [files] = [one for one in made if one["kind"] == "ConfigMap"]
    config = yaml.safe_load(files["data"][TRAINER_CONFIG_FILE])
    assert (config["steps"], config["schedule"]["kind"]) == (400, "constant")
    place = f"/checkpoints/{run_id(cluster)}"
    command = yaml.safe_load(files["data"][PROGRAM_FILE])["command"]
    assert command[command.index("--continue-from") + 1] == place


def _said(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    cluster: Cluster,
    *words: str,
) -> str:
    """What the command prints before it creates anything, which this cluster refuses."""
    with pytest.raises(AssertionError):
        call(monkeypatch, cluster, "run", "extend", "hello", *words)
    return capsys.readouterr().out


def test_a_constant_schedule_is_extended_exactly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = world("overrides.schedule.kind=constant")
    said = _said(monkeypatch, capsys, cluster, "--steps", "400")
    assert f"continues {run_id(cluster)} from its last checkpoint, step 200, to step 400" in said
    assert EXACT in said and "not exact" not in said and "warning" not in said


def test_a_schedule_that_has_decayed_says_what_it_does_instead(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = _said(monkeypatch, capsys, world(), "--steps", "400")
    assert EXACT not in said
    assert "not exact: the cosine schedule of the finished run ended at step 200" in said
    assert "from 0.0004 at step 200 to 0.00241 at step 201" in said
    kept = "overrides.schedule.kind=constant"
    assert "to 0.004 at step 201" in _said(
        monkeypatch, capsys, world(), "--steps", "400", "--set", kept
    )


def test_other_differences_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = world("overrides.schedule.kind=constant")
    said = _said(monkeypatch, capsys, cluster, "--steps", "400", "--set", "overrides.seed=9")
    assert "warning: differs from" in said and "config.seed" in said


def test_a_stacks_run_is_extended_by_lines_of_its_run_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = world(submitted=False)
    assert call(monkeypatch, cluster, *["run", "extend", "hello", "--steps", "400"]) == 1
    said = capsys.readouterr().out
    for line in ("  version: 2", f"  continues: {run_id(cluster)}", "    steps: 400", "pulumi up"):
        assert line in said


@pytest.mark.parametrize(
    ("condition", "steps", "named"),
    [
        ("Failed", 400, "has failed"),
        ("Suspended", 400, "has not ended"),
        ("Completed", 200, "--steps: got 200; must be more than the 200 steps"),
    ],
)
def test_what_cannot_be_extended_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    condition: str,
    steps: int,
    named: str,
) -> None:
    words = ["run", "extend", "hello", "--steps", str(steps)]
    assert call(monkeypatch, world(condition=condition), *words) == 2
    error = capsys.readouterr().err
    assert named in error and len(error.splitlines()) == 1


def test_checkpoints_in_s3_stay_where_they_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = "overrides.checkpoint.store=s3://bucket/hello"
    cluster = world(store, submitted=False)
    assert call(monkeypatch, cluster, *["run", "extend", "hello", "--steps", "400"]) == 1
    assert "continues:" not in capsys.readouterr().out
