"""`trainyard run submit`: what it renders, and one line for each mistake, without a cluster."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml

from infra.config import parse, stack_values
from infra.domain.published_record import PublishedRecord, from_text, to_text
from infra.kubernetes.objects import Manifest, type_token
from ops.submission import create, render, stopping
from tests.golden.example_runs import (
    IMAGE,
    LAUNCHERS,
    RUN_FILE,
    platform,
    project_in,
    run_of,
    write_runs,
)
from training import job, lineage, plan, run_files, runs
from training.spec import Launch

ROOT = Path(__file__).resolve().parents[3]
ADA = "ada@example.com"


def record() -> PublishedRecord:
    return from_text(to_text(platform(), "research", {"trainer": IMAGE}))


def file_of(folder: Path, *documents: dict[str, Any]) -> tuple[Path, Path]:
    project = project_in(folder)
    write_runs(project, *documents)
    return project, project / "training/runs/llama.yaml"


def submitted(folder: Path, *settings: str, **changes: Any) -> render.RenderedRun:
    project, file = file_of(folder, RUN_FILE | changes)
    return render.render(render.read(file, settings, project), record(), ADA)


def _committed() -> list[str]:
    of_examples = [
        path.relative_to(ROOT).as_posix()
        for path in sorted(ROOT.glob("examples/*/*.yaml"))
        if "run-file.schema.json" in path.read_text()
    ]
    runs = [
        path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "training/runs").glob("*"))
    ]
    return [*(name for name in runs if not name.endswith("sweep.yaml")), *of_examples]


def _local() -> plan.Plan:
    values = stack_values(ROOT / "Pulumi.local.yaml")
    values["operators"] = values["operators"] | {
        name: {"provided": True} for name in ("mpiOperator", "trainingOperator", "kubeflowTrainer")
    }
    more = {"runs": [], "elasticRuns": {"image": "sandbox.trainyard.dev/ops@source"}}
    return plan.make(values | more, "local", ROOT, preview=True)


@pytest.mark.parametrize("name", _committed())
def test_committed_runs_and_examples_are_rendered_as_by_a_stack(name: str) -> None:
    planned = _local()
    [*_, run] = run_files.load([name], planned.platform, planned.images, ROOT)
    launch = Launch(dirty=lineage.launch(ROOT).dirty, by=ADA)
    commit = lineage.git_commit(ROOT)
    expected = job.submitted(run, planned.platform, commit, launch)

    document = render.read(ROOT / name, [], ROOT)
    published = from_text(to_text(planned.platform, document.team, planned.images))
    found = render.render(document, published, ADA).manifests
    assert _text(found) == _text(expected)


def _text(manifests: list[Manifest]) -> str:
    return str(yaml.safe_dump_all(manifests, sort_keys=False))


def test_the_record_has_no_values_of_secrets_and_no_other_team() -> None:
    text = to_text(_local().platform, "research", {})
    assert parse(stack_values(ROOT / "Pulumi.local.yaml")).teams[1].name == "production"
    assert '"team-production"' not in text


def test_the_newest_version_is_submitted_with_the_settings_of_the_command_line(
    tmp_path: Path,
) -> None:
    project, file = file_of(tmp_path, RUN_FILE | {"version": 10}, RUN_FILE | {"version": 9})
    settings = ["nodes=1", "overrides.optimizer.learning_rate=1.0e-4"]
    document = render.read(file, settings, project)
    assert (document.values["version"], document.values["nodes"]) == (10, 1)
    assert document.values["overrides"] == {"optimizer": {"learning_rate": 1e-4}}
    found = render.render(document, record(), ADA)
    assert found.run_id.startswith("llama-v10-")
    assert ": 1 node of " in found.facts[-1]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        *(
            ("3", "3"),
            ("010", "010"),
            ("1.50", "1.50"),
            ("true", "true"),
            ("2026-01-01", "2026-01-01"),
        ),
        *(("", ""), ("null", "null"), ("'3'", "3"), ("{a: 1}", "{a: 1}"), ("[1, 2]", "[1, 2]")),
        *(("@x", "@x"), ("a: b: c", "a: b: c"), ("plain", "plain")),
    ],
)
def test_a_setting_of_a_key_for_text_is_taken_as_text(
    tmp_path: Path, given: str, expected: str
) -> None:
    program = {"command": ["train.py"], "env": {"OTHER": "x"}}
    project, file = file_of(tmp_path, {"name": "a", "version": 1, "team": "t", "program": program})
    settings = [f"program.env.SEED={given}", "program.command=[train.py, --lr, 0.10, 3]"]
    values = render.read(file, [*settings, "nodes=4", "resources.cpu=8"], project).values
    assert values["program"] == {
        "command": ["train.py", "--lr", "0.10", "3"],
        "env": {"OTHER": "x", "SEED": expected},
    }
    assert (values["nodes"], values["resources"]["cpu"]) == (4, "8")


def test_cost_and_limits_are_known_before_anything_is_created(tmp_path: Path) -> None:
    found = submitted(tmp_path, maxHours=2, costCapUsd=1000)
    [line] = found.facts
    [usd, most] = re.findall(r"([\d.]+) USD(?: per hour at most| of its cap)", line)
    assert float(usd) > 0 and float(most) == pytest.approx(2 * float(usd), abs=0.02)
    assert f"{found.run_id}: 2 nodes of spot, ondemand; " in line
    assert line.endswith(" USD of its cap of 1000 USD") and "; ends after 2 h, so" in line


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (["nodes"], "--set: got 'nodes'; must be KEY=VALUE"),
        (["=3"], "--set"),
        (["nodes=[1"], "must be a value in YAML"),
        (["team="], "team: got"),
    ],
)
def test_a_wrong_setting_is_one_line(tmp_path: Path, settings: list[str], named: str) -> None:
    project, file = file_of(tmp_path, RUN_FILE)
    with pytest.raises(render.RunFileError, match=r"\S") as error:
        render.read(file, settings, project)
    assert named in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_all_mistakes_of_a_run_file_are_found_at_once(tmp_path: Path) -> None:
    with pytest.raises(render.RunFileError) as error:
        submitted(tmp_path, "nodes=0", "gpuModel=h1000", "nonsense=1")
    lines = str(error.value).splitlines()
    assert any("nodes" in line for line in lines)
    assert any("nonsense" in line for line in lines)
    with pytest.raises(render.RunFileError, match="costCapUsd"):
        (tmp_path / "cap").mkdir()
        submitted(tmp_path / "cap", "costCapUsd=1", "maxHours=100")


def test_a_file_that_does_not_exist_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(render.RunFileError, match=r"missing\.yaml"):
        render.read(tmp_path / "missing.yaml", [], tmp_path)


def test_what_clone_and_resume_need_is_on_the_runs_own_config_map(tmp_path: Path) -> None:
    found = submitted(tmp_path)
    noted = create.with_source(found.manifests, {"name": "llama"})
    with_notes = [one for one in noted if "trainyard.dev/run-file" in str(one["metadata"])]
    assert [one["metadata"]["name"] for one in with_notes] == [found.run_id]
    assert _text(noted[-1:]) == _text(found.manifests[-1:])


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_an_import_file_names_every_object_as_the_stack_does(
    launcher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(launcher)
    registered: list[tuple[str, str]] = []
    monkeypatch.setattr(pulumi.ComponentResource, "__init__", lambda *_: None)
    monkeypatch.setattr(runs.TrainingJob, "register_outputs", lambda *_: None)
    monkeypatch.setattr(pulumi, "ResourceOptions", lambda **_: None)
    monkeypatch.setattr(
        runs,
        "KubernetesObject",
        lambda name, manifest, opts: registered.append((type_token(manifest), name)),
    )
    args = runs.TrainingJobArgs(run=run, platform=platform(), git_commit="c")
    runs.TrainingJob(run.run_id, args, None)  # type: ignore[arg-type]

    parts = job.manifests(run, platform(), "c")
    found = json.loads(stopping.import_file(parts, stopping.provider_urn("local")))
    component, *imported = found["resources"]
    assert [(one["type"], one["name"]) for one in imported] == registered
    assert {one["parent"] for one in imported} == {component["name"]} == {run.run_id}
    assert {one["provider"] for one in imported} <= found["nameTable"].keys()
