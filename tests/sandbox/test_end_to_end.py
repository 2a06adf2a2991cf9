"""The whole length of the project: `make up`, plain Pulumi, `make interrupt`, faults, `destroy`."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.domain import naming
from ops import objects
from ops.runs.listing import summary_of
from sandbox import paths
from sandbox.node import reclaim
from sandbox.node.api import Json
from sandbox.runs import Runs
from tests.sandbox import installed_kit
from tests.sandbox.conftest import Cluster, started
from tests.sandbox.node_kit import until
from training import lineage

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.timeout(1200),
    pytest.mark.core,
    pytest.mark.long(450),
]
STACK_FILE = paths.PROJECT / "Pulumi.local.yaml"
RUNS = "trainyard:runs"
COMMAND_S = 900.0
"""When a command counts as hanging, on a machine that is busy with other tests."""


def _run(cluster: Cluster, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=paths.PROJECT,
        env=cluster.env | env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=COMMAND_S,
    )


def _sandbox(cluster: Cluster, *args: str) -> subprocess.CompletedProcess[str]:
    home = str(cluster.state.home)
    return _run(cluster, sys.executable, "-m", "sandbox", *args, SANDBOX_HOME=home)


def _pulumi(cluster: Cluster, *args: str) -> subprocess.CompletedProcess[str]:
    return _run(cluster, "pulumi", *args, "--stack", "local", "--non-interactive")


def _ops(cluster: Cluster, *args: str) -> subprocess.CompletedProcess[str]:
    return _run(cluster, sys.executable, "-m", "ops", *args)


def _stack_with(runs: list[Any], folder: Path) -> Path:
    """A copy of the stack file with other runs, so that the committed one stays as it is."""
    stack = yaml.safe_load(STACK_FILE.read_text())
    stack["config"][RUNS] = runs
    file = folder / "Pulumi.local.yaml"
    file.write_text(yaml.safe_dump(stack))
    return file


def _run_file(folder: Path, name: str, **changed: Any) -> str:
    """A copy of the short drill run with another name."""
    run = yaml.safe_load((paths.PROJECT / "training/runs/drill.yaml").read_text())
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(run | {"name": name} | changed))
    return str(folder / f"{name}.yaml")


def _jobsets(cluster: Cluster) -> dict[str, str]:
    """uid of every JobSet by name; one that is being deleted stays until its pods have saved."""
    listed = json.loads(cluster.kubectl("get", "jobsets", "-A", "-o", "json"))
    found = [item["metadata"] for item in listed["items"]]
    return {meta["name"]: meta["uid"] for meta in found if "deletionTimestamp" not in meta}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of this module, in which the stack installs Kueue and JobSet."""
    with started(tmp_path_factory.mktemp("whole"), ()) as found:
        yield found


@pytest.fixture(scope="module")
def first_up(cluster: Cluster) -> Iterator[subprocess.CompletedProcess[str]]:
    """`make up`, once; what a failed test leaves of the stack is destroyed for the modules that follow."""
    done = _sandbox(cluster, "up")
    try:
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr
        yield done
    finally:
        if "namespace/team-" in cluster.kubectl("get", "namespaces", "-o", "name"):
            _pulumi(cluster, "cancel", "--yes")
            _pulumi(
                cluster, "destroy", "--yes", "--skip-preview", "--refresh", "--run-program=false"
            )


def test_up_trains_a_model_better_than_unigram_and_lists_addresses(
    cluster: Cluster, first_up: subprocess.CompletedProcess[str]
) -> None:
    text = first_up.stdout
    evaluation = re.search(
        r"evaluation\W+([\d.]+) on held-out files, a unigram model has ([\d.]+)", text
    )
    assert evaluation, text[-3000:]
    assert float(evaluation[1]) < 0.8 * float(evaluation[2])
    assert re.search(r"running, on spot; step \d+/\d+, loss [\d.]+", text)
    assert "every hash verified" in re.sub(r"[│\s]+", " ", text)
    assert "make interrupt" in text


def test_a_second_up_changes_nothing(
    cluster: Cluster, first_up: subprocess.CompletedProcess[str]
) -> None:
    before = _jobsets(cluster)
    again = _sandbox(cluster, "up")
    assert again.returncode == 0, again.stdout[-3000:] + again.stderr
    assert re.search(r"\d+ unchanged", again.stdout)
    assert not re.search(r"[-+~] \d+ (created|updated|deleted|replaced)", again.stdout)
    assert _jobsets(cluster) == before


def test_the_stack_file_stays_as_it_was_committed_and_the_run_records_no_other_change(
    cluster: Cluster, first_up: subprocess.CompletedProcess[str]
) -> None:
    assert "encryptionsalt" not in STACK_FILE.read_text()
    files = ["get", "configmaps", "-n", "team-research", "-l", f"{naming.RUN}=hello", "-o", "json"]
    [found] = json.loads(cluster.kubectl(*files))["items"]
    assert json.loads(found["data"]["run.json"])["dirty"] == lineage.is_dirty(paths.PROJECT)


def test_preview_and_refresh_right_after_up_see_no_change_and_a_lost_cluster_is_said(
    cluster: Cluster, first_up: subprocess.CompletedProcess[str], tmp_path: Path
) -> None:
    config = ["--config-file", str(_stack_with(["hello"], tmp_path))]
    preview = _pulumi(cluster, "preview", "--expect-no-changes", *config)
    assert preview.returncode == 0, preview.stdout + preview.stderr
    refresh = _pulumi(cluster, "refresh", "--yes", "--expect-no-changes", *config)
    assert refresh.returncode == 0, refresh.stdout + refresh.stderr

    nowhere = tmp_path / "kubeconfig"
    nowhere.write_text(
        re.sub(r"(https://127.0.0.1:)\d+", r"\g<1>1", cluster.kubeconfig.read_text())
    )
    lost = replace(cluster, env={**cluster.env, "KUBECONFIG": str(nowhere)})
    preview = _pulumi(lost, "preview", *config)
    assert "warning: cluster: API server https://127.0.0.1:1: no answer" in preview.stdout
    assert " to replace" not in preview.stdout and preview.returncode == 0, preview.stdout


def _workflow_scripts(
    cluster: Cluster, name: str, job: str, **env: str
) -> subprocess.CompletedProcess[str]:
    """What the steps of a workflow's job run, as GitHub's runner would, for the local stack."""
    tree = yaml.safe_load((paths.PROJECT / f".github/workflows/{name}.yml").read_text())
    script = "\n".join(step["run"] for step in tree["jobs"][job]["steps"] if "run" in step)
    variables = {"STACK": "local", "PULUMI_EXPERIMENTAL": "true", "GITHUB_STEP_SUMMARY": os.devnull}
    shell = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script)
    return _run(cluster, *shell, **(variables | env))


@pytest.fixture
def checkout() -> Iterator[None]:
    """Remove what the scripts leave: the plan, and the salt that the engine writes into the stack file."""
    before = STACK_FILE.read_text()
    try:
        yield
    finally:
        STACK_FILE.write_text(before)
        (paths.PROJECT / "plan.json").unlink(missing_ok=True)


def _review_comment(cluster: Cluster, folder: Path) -> str:
    """The comment of the workflow of pull requests; `aws` and `gh` are played, and there is no comment to edit."""
    programs = {
        "aws": '[ "$*" = "eks update-kubeconfig --name sandbox" ]',
        "gh": f'echo "$*" >> {folder}/asked',
    }
    for name, script in programs.items():
        program = folder / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    comment = folder / "comment.md"
    own = {"PATH": f"{folder}:{cluster.env['PATH']}", "PULL_REQUEST": "12", "COMMENT": str(comment)}
    own |= {
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
        "GITHUB_REPOSITORY": "acme/trainyard",
    }
    reviewed = _workflow_scripts(cluster, "preview", "account", **own)
    assert reviewed.returncode == 0, reviewed.stdout + reviewed.stderr
    posted = (folder / "asked").read_text().splitlines()[-1]
    assert posted == f"api --silent repos/acme/trainyard/issues/12/comments --field body=@{comment}"
    assert comment.read_text().strip() in (folder / "summary.md").read_text()
    return comment.read_text()


@pytest.mark.long(30)
def test_the_workflows_find_a_hand_edit_and_deploy_only_what_was_planned(
    cluster: Cluster,
    first_up: subprocess.CompletedProcess[str],
    checkout: None,
    tmp_path: Path,
    full: bool,
) -> None:
    hold = ["patch", "clusterqueue", "team-research", "--type=merge", "-p"]
    cluster.kubectl(*hold, '{"spec":{"stopPolicy":"Hold"}}')
    try:
        found = _workflow_scripts(cluster, "drift", "drift")
        assert found.returncode == 1, found.stdout + found.stderr
        assert re.search(r"spec.stopPolicy \| None \| Hold \|", found.stdout)
        assert "**local**: passes; no changes" in _review_comment(cluster, tmp_path)
        if not full:
            return
        planned = _workflow_scripts(cluster, "deploy-stack", "plan")
        assert planned.returncode == 0, planned.stdout + planned.stderr
        stale = _pulumi(cluster, "refresh", "--yes")
        assert stale.returncode == 0, stale.stdout + stale.stderr
        # The update would do more than the plan, which knew nothing of the hand edit.
        refused = _workflow_scripts(cluster, "deploy-stack", "up")
        assert refused.returncode != 0 and "violates plan" in refused.stdout + refused.stderr
        planned = _workflow_scripts(cluster, "deploy-stack", "plan")
        assert planned.returncode == 0 and "1 update" in planned.stdout, planned.stdout
        deployed = _workflow_scripts(cluster, "deploy-stack", "up")
        assert deployed.returncode == 0, deployed.stdout + deployed.stderr
        gone = _workflow_scripts(cluster, "drift", "drift")
        assert gone.returncode == 0, gone.stdout + gone.stderr
    finally:
        cluster.kubectl(*hold, '{"spec":{"stopPolicy":"None"}}')


@pytest.mark.long(19)
def test_the_policy_pack_passes_the_committed_stack(
    cluster: Cluster, first_up: subprocess.CompletedProcess[str], tmp_path: Path
) -> None:
    config = str(_stack_with(["hello"], tmp_path))
    preview = _pulumi(cluster, "preview", "--policy-pack", "policies", "--config-file", config)
    assert preview.returncode == 0, preview.stdout + preview.stderr
    assert "trainyard" in preview.stdout
    assert "mandatory" not in preview.stdout


@pytest.mark.long(60)
def test_a_member_installs_the_command_and_submits_from_a_folder_without_a_checkout(
    cluster: Cluster, first_up: subprocess.CompletedProcess[str], tmp_path: Path
) -> None:
    command = installed_kit.install(installed_kit.build_wheel(tmp_path), tmp_path / "env")
    folder = tmp_path / "my-project"
    folder.mkdir()
    own, group = tmp_path / "kubeconfig", naming.group("research", "researcher")
    kubeconfig = cluster.kubeconfig_of(own, "ada@example.com", group, "team-research")
    ada = installed_kit.Researcher(command, kubeconfig, folder)

    assert "trainyard init --script" in ada("run", "submit", code=2)
    assert "next: trainyard run submit run.yaml" in ada("init", "--script")
    endless = ["--set", 'program.command=[train.py, "1000000000"]']
    (tmp_path / "elsewhere").mkdir()
    there = replace(ada, folder=tmp_path / "elsewhere")
    said = there("run", "submit", "../my-project/run.yaml", "--source", str(folder), *endless)
    [run_id] = re.findall(r"^(my-project-v1-\w+): submitted as ada@example\.com$", said, re.M)
    assert f"source: {folder}, " in said
    until(lambda: "step" in ada("run", "logs", run_id), "it trains", COMMAND_S, every_s=2.0)
    assert f"{run_id} " in ada("run", "why", "my-project")
    assert f"trainyard run resume {run_id} continues it" in ada("run", "stop", "my-project")
    assert re.search(rf"{run_id} +stopped", ada("run", "list"))
    done = ada("run", "submit", "run.yaml", "--set", "version=2", "--watch")
    assert re.search(r"^my-project-v2-\w+: finished; step 1000/1000", done, re.M), done
    assert "finished" in ada("run", "why", "my-project")
    assert "stopped and deleted" in ada("run", "stop", run_id, "--delete", "--yes")
    refused = ada("run", "advise", "hello", "--stack", "Pulumi.local.yaml", "--hours", "1", code=2)
    assert "pulumi is not installed, which this command needs" in refused


def test_what_a_run_wrote_is_fetched_and_verified(
    cluster: Cluster, first_up: subprocess.CompletedProcess[str], tmp_path: Path
) -> None:
    options = ["--team", "research", "--to", str(tmp_path)]
    try:
        done = _ops(cluster, "run", "fetch", "hello", *options)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "verified against their manifests: checkpoints of step 120" in done.stdout
        (run,) = tmp_path.glob("hello-v1-*")
        assert (run / "metrics.jsonl").stat().st_size > 0
        assert (run / "checkpoints/step-00000120/model.safetensors").stat().st_size > 0
        model = run / "checkpoints/step-00000120/model.safetensors"
        model.write_bytes(bytes(model.stat().st_size))
        again = _ops(cluster, "run", "fetch", "hello", *options)
        assert again.returncode == 0 and "copied 1 files" in again.stdout, again.stdout
    finally:
        _ops(cluster, "dev", "stop", "transfer", "--team", "research")


def _review(cluster: Cluster, config: str, folder: Path, *options: str) -> dict[str, Any]:
    """What `stack review` says of the change to another stack file, before it is made."""
    preview = _pulumi(cluster, "preview", "--json", "--config-file", config)
    assert preview.returncode == 0, preview.stdout[-3000:] + preview.stderr
    (folder / "preview.json").write_text(preview.stdout)
    file = ["--preview", str(folder / "preview.json"), "--json"]
    said = _ops(cluster, "stack", "review", "--stack", "local", *file, *options)
    assert said.returncode in (0, 1), said.stderr
    found: dict[str, Any] = json.loads(said.stdout)
    return found


def _runs_of(review: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["does"] for one in review["consequences"] if one["what"] == "run"}


@pytest.mark.long(42)
def test_an_added_run_leaves_the_old_one_alone_and_an_edited_one_gets_a_new_id(
    cluster: Cluster, first_up: subprocess.CompletedProcess[str], tmp_path: Path, full: bool
) -> None:
    before = _jobsets(cluster)
    short = {"steps": 12}
    one = _run_file(tmp_path, "edited", overrides=short)
    config = str(_stack_with(["hello", one], tmp_path))
    done = _pulumi(cluster, "up", "--yes", "--skip-preview", "--config-file", config)
    assert done.returncode == 0, done.stdout + done.stderr
    added = _jobsets(cluster)
    assert before.items() <= added.items()
    (name,) = added.keys() - before.keys()
    _run_file(tmp_path, "edited", overrides=short | {"seed": 7})
    review = _review(cluster, config, tmp_path) if full else None
    if full:
        pack = ["--policy-pack", "policies", "--config-file", config]
        refused = _pulumi(cluster, "preview", *pack)
        assert refused.returncode != 0 and "[mandatory]  run-documents" in refused.stdout
    done = _pulumi(cluster, "up", "--yes", "--skip-preview", "--config-file", config)
    assert done.returncode == 0, done.stdout + done.stderr
    edited = _jobsets(cluster)
    assert before.items() <= edited.items()
    (new_name,) = edited.keys() - before.keys()
    assert new_name != name
    assert new_name.startswith("edited-v1-")
    if review:
        assert _runs_of(review) == {name: "stopped", new_name: "started"}
        assert review["editedRuns"] == ["edited-v1"] and not review["passes"]


@pytest.mark.long(67)
def test_wait_exits_with_the_exit_code_of_a_failed_run(
    cluster: Cluster, first_up: subprocess.CompletedProcess[str], tmp_path: Path
) -> None:
    run = _run_file(tmp_path, "impossible", dataset={"name": "absent", "version": "0" * 16})
    source = {"name": "missing", "source": "/data/missing/texts", "format": "jsonl"}
    unprepared = _run_file(tmp_path, "unprepared", dataset=source)
    config = str(_stack_with(["hello", run, unprepared], tmp_path))
    done = _pulumi(cluster, "up", "--yes", "--skip-preview", "--config-file", config)
    assert done.returncode == 0, done.stdout + done.stderr
    waited = _ops(cluster, "run", "wait", "impossible")
    assert waited.returncode == 78, waited.stdout + waited.stderr
    runs = Runs(cluster.state)
    assert summary_of(runs.read(runs.find("impossible"))).attempt == 1
    waited = _ops(cluster, "run", "wait", "unprepared")
    assert waited.returncode == 78, waited.stdout + waited.stderr
    why = _ops(cluster, "run", "why", "unprepared").stdout
    assert "its dataset could not be prepared" in why
    assert "/data/missing/texts is not a folder" in " ".join(why.split())


def test_invalid_stack_file_reports_one_line_per_error_and_creates_nothing(
    cluster: Cluster, first_up: subprocess.CompletedProcess[str], tmp_path: Path
) -> None:
    stack = yaml.safe_load(STACK_FILE.read_text())
    stack["config"]["trainyard:nodePools"][0]["min"] = "nine"
    stack["config"]["trainyard:teamz"] = []
    file = tmp_path / "Pulumi.local.yaml"
    file.write_text(yaml.safe_dump(stack))
    before = _jobsets(cluster)
    done = _pulumi(cluster, "up", "--yes", "--skip-preview", "--config-file", str(file))
    assert done.returncode != 0
    shown = done.stdout + done.stderr
    assert "nodePools[0].min" in shown
    assert "teamz" in shown
    assert "Traceback" not in shown
    assert _jobsets(cluster) == before


@pytest.mark.long(35)
def test_up_converges_after_being_killed_at_any_point(
    cluster: Cluster, first_up: subprocess.CompletedProcess[str], tmp_path: Path
) -> None:
    run = _run_file(tmp_path, "killed", overrides={"steps": 12})
    config = str(_stack_with(["hello", run], tmp_path))
    log = tmp_path / "up.log"
    with log.open("w") as out:
        command = ["pulumi", "up", "--stack", "local", "--yes", "--skip-preview"]
        engine = subprocess.Popen(
            [*command, "--non-interactive", "--config-file", config],
            cwd=paths.PROJECT,
            env=cluster.env,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = time.monotonic() + 300
    while "creating" not in log.read_text():
        assert time.monotonic() < deadline and engine.poll() is None, log.read_text()
        select.select([], [], [], 0.02)
    os.kill(engine.pid, signal.SIGKILL)
    engine.wait()
    again = _sandbox(cluster, "up")
    assert again.returncode == 0, again.stdout[-3000:] + again.stderr
    assert "its lock is released" in again.stdout
    committed = str(_stack_with(["hello"], tmp_path))
    refresh = _pulumi(
        cluster, "refresh", "--yes", "--expect-no-changes", "--config-file", committed
    )
    assert refresh.returncode == 0, refresh.stdout + refresh.stderr
    assert not [name for name in _jobsets(cluster) if name.startswith("killed-")]


def test_run_survives_spot_reclaims_with_and_without_notice(
    cluster: Cluster, first_up: subprocess.CompletedProcess[str]
) -> None:
    drill = _sandbox(cluster, "drill")
    assert drill.returncode == 0, drill.stdout[-6000:] + drill.stderr
    assert drill.stdout.count("bit for bit equal") == 3
    for change in ("2 -> 1 groups", "1 -> 2 groups"):
        assert change in drill.stdout
    assert "Every interruption was survived." in drill.stdout
    assert all(name.startswith("hello-") for name in _jobsets(cluster))


def _in_zone(cluster: Cluster, zone: str) -> list[str]:
    nodes = json.loads(cluster.kubectl("get", "nodes", "-o", "json", "-l", f"{naming.ZONE}={zone}"))
    return [node["metadata"]["name"] for node in nodes["items"]]


@pytest.mark.full_only
def test_runs_go_on_in_another_zone_after_theirs_is_lost(
    cluster: Cluster, first_up: subprocess.CompletedProcess[str], tmp_path: Path
) -> None:
    """docs/recover.md, "Lost zone"."""
    lost, new = "sandbox-1a", "sandbox-1c"
    file = _stack_with(["hello", _run_file(tmp_path, "zonal", overrides={"steps": 300})], tmp_path)
    done = _pulumi(cluster, "up", "--yes", "--skip-preview", "--config-file", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    runs = Runs(cluster.state)
    run = runs.find("zonal")
    before = _reached(runs, run, 15)
    nodes, others = _in_zone(cluster, lost), _in_zone(cluster, "sandbox-1b")
    begun = time.monotonic()
    for node in nodes:
        reclaim.reclaim(node, 0.0, state=cluster.state)
    file.write_text(file.read_text().replace(lost, new))
    done = _pulumi(cluster, "up", "--yes", "--skip-preview", "--config-file", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    updated = time.monotonic()
    assert _in_zone(cluster, new) == nodes and not _in_zone(cluster, lost)
    assert _in_zone(cluster, "sandbox-1b") == others
    until(lambda: runs.progress(run).step > before, "the run goes on", 600.0)
    resumed = [e for e in runs.progress(run).events if e.get("event") == "resumed"]
    assert before - 20 <= resumed[-1]["from_step"] <= before, resumed
    print(
        f"{len(nodes)} nodes lost at step {before}; updated after {updated - begun:.0f} s, past this step"
        f" after {time.monotonic() - begun:.0f} s, from step {resumed[-1]['from_step']}"
    )
    again = _pulumi(cluster, "preview", "--expect-no-changes", "--config-file", str(file))
    assert again.returncode == 0, again.stdout + again.stderr
    committed = str(_stack_with(["hello"], tmp_path))
    done = _pulumi(cluster, "up", "--yes", "--skip-preview", "--config-file", committed)
    assert done.returncode == 0 and sorted(_in_zone(cluster, lost)) == sorted(nodes)


def _reached(runs: Runs, run: Json, step: int) -> int:
    until(lambda: runs.progress(run).step >= step, f"step {step}", 600.0)
    return runs.progress(run).step


def _line_of(text: str, kind: str, what: str) -> int:
    """The first line, of the engine's, on which an object of a kind is `deleting` or `deleted`.

    The platform's node checks have their own queues and namespace, whose deletion waits for no run.
    """
    lines = [line if " validation" not in line else "" for line in text.splitlines()]
    return next(i for i, line in enumerate(lines) if f":{kind} " in line and f" {what} " in line)


@contextlib.contextmanager
def _pods_watched(cluster: Cluster, run_id: str, folder: Path) -> Iterator[Path]:
    """A file of every state that the pods of a run of team research go through."""
    seen = folder / "pods.json"
    command = ["kubectl", "get", "pods", "-n", "team-research", "--watch", "-o", "json"]
    with seen.open("w") as out:
        selector = ["-l", f"trainyard.dev/run-id={run_id}"]
        watcher = subprocess.Popen([*command, *selector], env=cluster.env, stdout=out)
        try:
            yield seen
        finally:
            watcher.terminate()
            watcher.wait()


def _drained_and_resumed(cluster: Cluster, runs: Runs, run: Json) -> None:
    """The run saves and stops when its queue is drained, and goes on from there."""
    until(
        lambda: "has trained for" in _ops(cluster, "run", "why", "last").stdout,
        "its pods are ready",
        300.0,
    )
    drained = _ops(cluster, "stack", "drain", "--timeout", "300")
    assert drained.returncode == 0, drained.stdout + drained.stderr
    saved = runs.progress(run).step
    assert "its queue is stopped" in _ops(cluster, "run", "why", "last").stdout
    assert _ops(cluster, "stack", "resume").returncode == 0
    until(lambda: runs.progress(run).step > saved, "the run goes on", 300.0)
    resumed = [e for e in runs.progress(run).events if e.get("event") == "resumed"]
    assert resumed[-1]["from_step"] == saved, resumed


def test_destroy_lets_a_running_run_save_and_deletes_the_whole_stack(
    cluster: Cluster, first_up: subprocess.CompletedProcess[str], tmp_path: Path, full: bool
) -> None:
    config = str(
        _stack_with(["hello", _run_file(tmp_path, "last", overrides={"steps": 5000})], tmp_path)
    )
    done = _pulumi(cluster, "up", "--yes", "--skip-preview", "--config-file", config)
    assert done.returncode == 0, done.stdout + done.stderr
    runs = Runs(cluster.state)
    run = runs.find("last")
    run_id = objects.run_id_of(run)
    until(lambda: runs.progress(run).step > 0, "the run trains", 300.0)
    if full:
        without = tmp_path / "without"
        without.mkdir()
        review = _review(cluster, str(_stack_with(["hello"], without)), tmp_path, "--live")
        assert _runs_of(review) == {run_id: "stopped"}
        (unsaved,) = review["live"]["unsaved"]
        assert unsaved["gpus"] > 0 and 0 < unsaved["gpuHours"] < 1, unsaved
        assert review["live"]["nodes"]["spot"] == 2 and review["live"]["usdPerHour"] == 0
        _drained_and_resumed(cluster, runs, run)

    with _pods_watched(cluster, run_id, tmp_path) as seen:
        done = _pulumi(cluster, "destroy", "--yes", "--skip-preview", "--config-file", config)
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"exitCode": 75' in seen.read_text(), "no pod ended with a good checkpoint"
    for first, then in (
        ("JobSet", "LocalQueue"),
        ("JobSet", "ClusterQueue"),
        ("JobSet", "Namespace"),
        ("LocalQueue", "ClusterQueue"),
        ("ClusterQueue", "Cohort"),
        ("Cohort", "ResourceFlavor"),
        ("ResourceFlavor", "Topology"),
        ("ClusterQueue", "Node"),
    ):
        assert _line_of(done.stdout, first, "deleted") < _line_of(done.stdout, then, "deleting")
    left = cluster.kubectl("get", "nodes,jobsets,jobs,pods,pv", "-A", "-o", "name")
    ours = ("spot", "hello", "last-", "team-", "trainyard", "zone")
    assert not [line for line in left.splitlines() if any(word in line for word in ours)], left
    namespaces = cluster.kubectl("get", "namespaces", "-o", "name")
    assert "team-" not in namespaces
    # Queues and workloads went with Kueue's kinds, which are objects of its release.
    assert "kueue.x-k8s.io" not in cluster.kubectl("get", "crds", "-o", "name")
