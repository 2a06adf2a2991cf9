"""Restore drill CronJob of a team: when it exists, and its read-only access."""

from __future__ import annotations

import re
from typing import Any

import pytest

from infra.domain import naming
from infra.kubernetes import pod_security
from infra.sections.teams import RestoreDrillConfig
from infra.tenancy import restore_drill
from tests.golden.example_runs import IMAGE
from training.launchers import pod as training_pod
from trainyard import contract

DRILL = RestoreDrillConfig()


def pod_of(drill: RestoreDrillConfig) -> dict[str, Any]:
    job = restore_drill.cron_job("production", drill, IMAGE, {})["spec"]["jobTemplate"]["spec"]
    found: dict[str, Any] = job["template"]["spec"]
    return found


def test_drill_mounts_team_checkpoints_read_only() -> None:
    spec_ = pod_of(DRILL)
    mounts = {m["name"]: m for m in spec_["containers"][0]["volumeMounts"]}
    claims = {
        v["name"]: v["persistentVolumeClaim"]["claimName"]
        for v in spec_["volumes"]
        if "persistentVolumeClaim" in v
    }
    assert claims == {"checkpoints": naming.CHECKPOINTS_CLAIM}
    assert mounts["checkpoints"] == {
        "name": "checkpoints",
        "mountPath": contract.CHECKPOINT_MOUNT,
        "readOnly": True,
    }


def test_drill_pod_is_restricted_like_run_pods_and_has_no_token() -> None:
    spec_ = pod_of(DRILL)
    assert spec_["securityContext"] == pod_security.pod_security_with_volumes()
    assert spec_["containers"][0]["securityContext"] == training_pod.restricted()
    assert spec_["automountServiceAccountToken"] is False
    assert spec_["serviceAccountName"] == naming.SERVICE_ACCOUNT


def test_drill_pod_has_scratch_space_and_requests_no_gpu() -> None:
    spec_ = pod_of(DRILL)
    amounts = spec_["containers"][0]["resources"]
    assert amounts == {
        "requests": {"cpu": "1", "memory": "9Gi"},
        "limits": {"cpu": "1", "memory": "9Gi"},
    }
    [scratch] = [v for v in spec_["volumes"] if v["name"] == "scratch"]
    assert scratch["emptyDir"] == {"sizeLimit": "9Gi"}
    assert "tolerations" not in spec_


def test_drill_runs_the_trainer_image_on_the_runs_of_the_team() -> None:
    stores = ("s3://acme-checkpoints/production",)
    drill = RestoreDrillConfig(runs=5, largest="1Mi", stores=stores)
    [container] = pod_of(drill)["containers"]
    assert container["image"] == IMAGE
    assert container["workingDir"] == contract.WORKSPACE
    assert container["command"] == [
        *("python", "-m", "trainer.drills", contract.CHECKPOINT_MOUNT, *stores),
        *("--scratch", "/scratch", "--newest", "5", "--largest", "1048576"),
    ]


def test_failed_drill_fails_the_job_and_a_lost_node_does_not() -> None:
    job = restore_drill.cron_job("production", DRILL, IMAGE, {})["spec"]["jobTemplate"]["spec"]
    assert job["backoffLimit"] == 0
    [rule] = job["podFailurePolicy"]["rules"]
    assert rule["action"] == "Ignore" and rule["onPodConditions"][0]["type"] == "DisruptionTarget"


def test_drills_never_overlap_and_old_jobs_are_deleted() -> None:
    spec_ = restore_drill.cron_job("production", DRILL, IMAGE, {})["spec"]
    assert spec_["concurrencyPolicy"] == "Forbid"
    assert spec_["jobTemplate"]["spec"]["ttlSecondsAfterFinished"] > 0


@pytest.mark.parametrize(
    ("tier", "has_image", "enabled", "wanted"),
    [
        ("production", True, None, True),
        ("production", False, None, False),
        ("research", True, None, False),
        ("research", True, True, True),
        ("production", True, False, False),
    ],
)
def test_production_teams_have_a_drill_by_default(
    tier: str, has_image: bool, enabled: bool | None, wanted: bool
) -> None:
    section = RestoreDrillConfig(enabled=enabled)
    assert section.wanted(tier, has_image=has_image) is wanted


def test_production_team_with_a_drill_image_has_a_drill() -> None:
    section = RestoreDrillConfig(image=IMAGE)
    assert section.wanted("production", has_image=False)
    assert not section.wanted("research", has_image=False)


@pytest.mark.parametrize("schedule", ["17 3 * * *", "*/15 0-6,22 1 1-12/2 0,6"])
def test_valid_cron_schedule_is_accepted(schedule: str) -> None:
    assert RestoreDrillConfig(schedule=schedule).schedule == schedule


@pytest.mark.parametrize(
    "schedule",
    [
        *("daily", "60 3 * * *", "17 3 * *", "17 5-3 * * *", "@daily"),
        # Kubernetes rejects weekday 8, a step of 0 and non-ASCII digits.
        *("17 3 * * 7", "*/0 * * * *", "\N{ARABIC-INDIC DIGIT ONE} 3 * * *"),
    ],
)
def test_invalid_cron_schedule_is_rejected(schedule: str) -> None:
    with pytest.raises(ValueError, match=re.escape("such as 17 3 * * *")):
        RestoreDrillConfig(schedule=schedule)
