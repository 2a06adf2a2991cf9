"""GitHub workflows: pinned actions, no long-lived keys, existing commands."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bootstrap.roles import SESSION_S
from ops.review import report
from sandbox.toolchain.tools import PULUMI_VERSION
from tools import stacks

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
ACTIONS = sorted((ROOT / ".github/actions").glob("*/action.yml"))
PINNED = re.compile(r"uses: [\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")

Tree = dict[str, Any]


def workflow(path: Path) -> Tree:
    found: Tree = yaml.safe_load(path.read_text())
    return found


def steps(path: Path) -> Iterator[Tree]:
    """Every step of a workflow's jobs, or of a composite action; a job that calls a workflow has none."""
    tree = workflow(path)
    for job in tree.get("jobs", {"": tree.get("runs")}).values():
        yield from job.get("steps", [])


def names(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(ROOT / ".github")) for path in paths]


def test_workflows_cover_every_stage_of_a_change() -> None:
    assert [path.stem for path in WORKFLOWS] == [
        *("checks", "deploy-stack", "deploy", "drift", "image", "ops-image", "preview", "soak")
    ]


@pytest.mark.parametrize("path", [*WORKFLOWS, *ACTIONS], ids=names([*WORKFLOWS, *ACTIONS]))
def test_every_action_is_pinned_by_commit_with_a_version_comment(path: Path) -> None:
    used = [line.strip().removeprefix("- ") for line in path.read_text().splitlines()]
    foreign = [line for line in used if line.startswith("uses:") and "uses: ./" not in line]
    assert (foreign or path.stem == "deploy") and [
        line for line in foreign if not PINNED.fullmatch(line)
    ] == []


def test_every_action_has_the_same_commit_everywhere() -> None:
    text = "\n".join(path.read_text() for path in [*WORKFLOWS, *ACTIONS])
    pins: dict[str, set[str]] = {}
    for action, pin in re.findall(r"uses: ([\w./-]+)@(.+)", text):
        pins.setdefault(action, set()).add(pin)
    assert {action: found for action, found in pins.items() if len(found) > 1} == {}


@pytest.mark.parametrize("path", [*WORKFLOWS, *ACTIONS], ids=names([*WORKFLOWS, *ACTIONS]))
def test_no_long_lived_cloud_credentials_are_used(path: Path) -> None:
    text = path.read_text()
    assert "secrets." not in text
    assert "aws-access-key-id" not in text and "pull_request_target" not in text


@pytest.mark.parametrize("path", WORKFLOWS, ids=names(WORKFLOWS))
def test_workflow_permissions_are_read_only_by_default(path: Path) -> None:
    assert workflow(path)["permissions"] == {"contents": "read"}
    for name, job in workflow(path)["jobs"].items():
        more = {("image", "propose"): {"contents"}}
        assert {
            scope for scope, level in job.get("permissions", {}).items() if level == "write"
        } <= {"id-token", "pull-requests"} | more.get((path.stem, name), set())
        # GitHub ends a job after six hours; only tests with full counts may take nearly as long.
        longest = 350 if path.stem == "soak" else 120
        assert "uses" in job or 0 < job["timeout-minutes"] <= longest


@pytest.mark.parametrize("path", [*WORKFLOWS, *ACTIONS], ids=names([*WORKFLOWS, *ACTIONS]))
def test_every_make_target_in_a_workflow_exists(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    run = "\n".join(str(step.get("run", "")) for step in steps(path))
    assert set(re.findall(r"\bmake ([a-z-]+)", run)) <= targets


def test_scripts_do_not_interpolate_pull_request_input() -> None:
    for path in [*WORKFLOWS, *ACTIONS]:
        assert [step for step in steps(path) if "${{" in str(step.get("run", ""))] == []


def test_credentials_are_limited_to_branches_of_the_repository() -> None:
    jobs = workflow(ROOT / ".github/workflows/preview.yml")["jobs"]
    own = "github.event.pull_request.head.repo.full_name == github.repository"
    assert own in jobs["account"]["if"]
    assert "permissions" not in jobs["offline"] and "environment" not in jobs["offline"]


def test_a_session_lasts_as_long_as_the_longest_job_and_as_its_role_allows() -> None:
    (prepare,) = ACTIONS
    (session,) = [
        step["with"]["role-duration-seconds"]
        for step in steps(prepare)
        if "role-to-assume" in step.get("with", {})
    ]
    assert session == SESSION_S
    for path in WORKFLOWS:
        for job in workflow(path)["jobs"].values():
            uses = [step.get("uses", "") for step in job.get("steps", [])]
            # Without a duration the action asks for an hour.
            own = any(one.startswith("aws-actions/configure-aws-credentials@") for one in uses)
            assert not own or job["timeout-minutes"] * 60 <= 3600
            if "./.github/actions/prepare" in uses:
                assert job["timeout-minutes"] * 60 <= session


@pytest.mark.parametrize(
    ("stack", "region"), [("dev", "us-east-1"), ("eu", "eu-central-1"), ("local", "")]
)
def test_a_session_is_in_the_region_of_the_stack_s_file(
    stack: str, region: str, tmp_path: Path
) -> None:
    (prepare,) = ACTIONS
    (found,) = [step for step in steps(prepare) if step.get("id") == "stack"]
    file = tmp_path / f"Pulumi.{stack}.yaml"
    like = "local" if stack == "local" else "dev"
    text = (ROOT / f"Pulumi.{like}.yaml").read_text()
    file.write_text(text.replace("region: us-east-1", f"region: {region}"))
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    output = tmp_path / "output"
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "GITHUB_OUTPUT": str(output)}
    subprocess.run(
        ["bash", "-ec", found["run"]], cwd=tmp_path, env=env | {"STACK": stack}, check=True
    )
    assert output.read_text() == f"region={region}\n"
    (session,) = [step for step in steps(prepare) if "role-to-assume" in step.get("with", {})]
    asked = "${{ steps.stack.outputs.region || inputs.region }}"
    assert session["with"]["aws-region"] == asked
    for path in WORKFLOWS:
        for step in steps(path):
            if step.get("uses") == "./.github/actions/prepare":
                assert step["with"]["stack"] in ("${{ matrix.stack }}", "${{ inputs.stack }}")


def test_previews_and_drift_detection_use_different_roles() -> None:
    """Branches run as the preview's role; only drift detection, which runs on main, reads Secrets."""
    used = {
        name: set(
            re.findall(r"\b\w+_ROLE_?\w*", (ROOT / f".github/workflows/{name}.yml").read_text())
        )
        for name in ("preview", "drift", "deploy-stack")
    }
    assert used == {
        "preview": {"PREVIEW_ROLE_"},
        "drift": {"DRIFT_ROLE_"},
        "deploy-stack": {"DRIFT_ROLE_", "DEPLOY_ROLE"},
    }
    assert "pull_request" not in (ROOT / ".github/workflows/drift.yml").read_text()


def test_preview_is_one_review_with_a_comment_and_the_live_state_where_there_is_a_cluster() -> None:
    previews = workflow(ROOT / ".github/workflows/preview.yml")["jobs"]["account"]["steps"]
    assert [step for step in previews if "command" in step.get("with", {})] == []
    (review,) = [step for step in previews if "stack review" in step.get("run", "")]
    assert "--comment" in review["run"] and "live=(--live)" in review["run"]
    assert "GITHUB_TOKEN" not in review["env"], "the program of a branch runs in this step"
    assert review["env"]["KUBECONFIG"].startswith("${{ runner.temp }}/")
    (post,) = [step for step in previews if "gh api" in step.get("run", "")]
    assert post["env"]["GH_TOKEN"] == "${{ github.token }}"
    assert post["env"]["COMMENT"] == review["env"]["COMMENT"]
    assert report.marker("$STACK") in post["run"].replace("\\", "")


@pytest.mark.parametrize(
    ("listed", "posted"),
    [
        ("", "repos/acme/it/issues/12/comments --field body=@FILE"),
        ("7\n9", "--method PATCH repos/acme/it/issues/comments/7 --field body=@FILE"),
    ],
)
def test_the_comment_is_made_once_and_then_edited(listed: str, posted: str, tmp_path: Path) -> None:
    """`gh` is played: it lists these ids, and notes what else it is asked."""
    jobs = workflow(ROOT / ".github/workflows/preview.yml")["jobs"]
    (script,) = [
        run for step in jobs["account"]["steps"] if "gh api" in (run := step.get("run", ""))
    ]
    comment, asked, gh = (tmp_path / name for name in ("comment.md", "asked", "gh"))
    comment.write_text("said")
    lists = f"case $2 in --paginate) printf '{listed}' ;; *) echo \"$*\" >> {asked} ;; esac"
    gh.write_text(f"#!/bin/sh\n{lists}\n")
    gh.chmod(0o755)
    variables = {"COMMENT": str(comment), "PULL_REQUEST": "12", "STACK": "dev"}
    variables |= {"GITHUB_REPOSITORY": "acme/it", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-eo", "pipefail", "-c", script], env=variables, check=True)
    assert asked.read_text().strip() == f"api --silent {posted}".replace("FILE", str(comment))


def test_every_committed_stack_is_deployed_and_prod_waits_for_dev() -> None:
    jobs = workflow(ROOT / ".github/workflows/deploy.yml")["jobs"]
    assert [job["with"] for job in jobs.values()] == stacks.stacks(ROOT)
    assert jobs["prod"]["needs"] == "dev"
    assert {job["uses"] for job in jobs.values()} == {"./.github/workflows/deploy-stack.yml"}


def test_updates_of_a_stack_are_serialized_and_follow_the_plan_that_was_approved() -> None:
    jobs = workflow(ROOT / ".github/workflows/deploy-stack.yml")["jobs"]
    assert list(jobs) == ["plan", "up"] and jobs["up"]["needs"] == "plan"
    assert "environment" not in jobs["plan"] and jobs["up"]["environment"] == "${{ inputs.stack }}"
    assert jobs["up"]["concurrency"] == {
        "group": "stack-${{ inputs.stack }}",
        "cancel-in-progress": False,
    }
    (made,) = [step["run"] for step in jobs["plan"]["steps"] if "run" in step]
    (done,) = [step["run"] for step in jobs["up"]["steps"] if "run" in step]
    assert "--save-plan plan.json" in made and "pulumi up" in done and "--plan plan.json" in done


def test_nothing_but_updates_waits_in_the_group_of_updates() -> None:
    """GitHub keeps one waiting job per group and cancels the others, whatever `cancel-in-progress` is."""
    groups = {
        (path.stem, name): job["concurrency"]["group"].partition("-$")[0]
        for path in WORKFLOWS
        for name, job in workflow(path)["jobs"].items()
        if "concurrency" in job
    }
    assert [job for job, group in groups.items() if group == "stack"] == [("deploy-stack", "up")]
    assert groups["drift", "drift"] == "drift"


def test_stacks_of_workflows_are_those_without_simulated_nodes(tmp_path: Path) -> None:
    assert stacks.stacks(ROOT) == [
        {"stack": "dev", "suffix": "DEV"},
        {"stack": "prod", "suffix": "PROD"},
    ]
    for file in ROOT.glob("Pulumi.*.yaml"):
        (tmp_path / file.name).write_text(file.read_text())
    (tmp_path / "Pulumi.eu-west.yaml").write_text((ROOT / "Pulumi.dev.yaml").read_text())
    assert {"stack": "eu-west", "suffix": "EU_WEST"} in stacks.stacks(tmp_path)
    for name in ("preview", "drift"):
        matrices = [
            job["strategy"]["matrix"]["include"]
            for job in workflow(ROOT / f".github/workflows/{name}.yml")["jobs"].values()
            if "strategy" in job
        ]
        assert set(matrices) == {"${{ fromJSON(needs.stacks.outputs.list) }}"}


def test_the_soak_runs_each_part_of_make_soak_in_a_job_of_its_own(tmp_path: Path) -> None:
    recipe = (ROOT / "Makefile").read_text().partition("\nsoak:")[2].partition("\n\n")[0]
    folders = re.findall(r"tests/\w+", recipe)
    jobs = workflow(ROOT / ".github/workflows/soak.yml")["jobs"]
    (script,) = [step["run"] for step in jobs["files"]["steps"] if "run" in step]
    output = tmp_path / "output"
    env = {"PATH": os.environ["PATH"], "GITHUB_OUTPUT": str(output)}
    subprocess.run(["bash", "-ec", script], cwd=ROOT, env=env, check=True)
    files = json.loads(output.read_text().removeprefix("list="))
    live = [file for name in folders for file in (ROOT / name).glob("test_*.py")]
    assert folders and sorted(files) == sorted(
        [*(str(file.relative_to(ROOT)) for file in live), "tests/aws", "gate"]
    )
    assert len(files) <= 256, "GitHub starts no larger matrix"
    commands = "\n".join(step.get("run", "") for job in jobs.values() for step in job["steps"])
    assert '-m tools.run_tests $FULL "$FILE"' in commands
    for command in re.findall(r"-m bench .+", recipe):
        assert command in commands


def test_ci_uses_the_tested_pulumi_version() -> None:
    named = [
        step["with"]["pulumi-version"]
        for path in WORKFLOWS
        for step in steps(path)
        if step.get("uses", "").startswith("pulumi/actions@")
    ]
    assert named and set(named) == {PULUMI_VERSION}


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ("success skipped", 0),
        ("skipped success", 0),
        ("failure skipped", 1),
        ("skipped failure", 1),
        ("cancelled skipped", 1),
        ("skipped skipped", 1),
    ],
)
def test_the_gate_of_previews_passes_if_one_kind_of_preview_did(results: str, code: int) -> None:
    jobs = workflow(ROOT / ".github/workflows/preview.yml")["jobs"]
    gate, _ = jobs.pop("gate"), jobs.pop("stacks")
    assert gate["if"] == "always()" and sorted(gate["needs"]) == sorted(jobs)
    script = gate["steps"][0]["run"]
    done = subprocess.run(["bash", "-ec", script], env={"RESULTS": results}, check=False)
    assert done.returncode == code


def test_the_image_of_the_platforms_programs_is_for_sections_that_have_one() -> None:
    text = (ROOT / ".github/workflows/ops-image.yml").read_text()
    named = re.findall(r"\\`(\w+)\\`", re.findall(r"echo .*in the stack files", text)[0])
    schema = json.loads((ROOT / "docs/schemas/stack-file.schema.json").read_text())
    assert named[0] == "image"
    assert {f"trainyard:{name}" for name in named[1:]} <= set(
        schema["properties"]["config"]["properties"]
    )


def test_checks_install_what_the_soak_does() -> None:
    def packages(name: str) -> set[str]:
        text = (ROOT / f".github/workflows/{name}.yml").read_text()
        return set(" ".join(re.findall(r"apt-get install -y -qq (.+)", text)).split())

    assert packages("checks") == packages("soak")
