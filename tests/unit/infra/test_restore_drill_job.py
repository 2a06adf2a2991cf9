"""A team's restore drill: who has one, and that it can only read."""

from __future__ import annotations

import re
from typing import Any

import pytest

from infra.config.sections.teams.model import RestoreDrillConfig
from infra.domain import naming
from infra.kubernetes import pod_security
from infra.tenancy import restore_drill
from infra.tenancy.restore_drill import RestoreDrill
from tests.golden.example_runs import IMAGE
from training import spec
from training.deployment.launchers import pod as training_pod

DRILL = RestoreDrill(image=IMAGE, schedule="17 3 * * *", runs=3, largest=8 * 1024**3)


def pod_of(drill: RestoreDrill) -> dict[str, Any]:
    job = restore_drill.cron_job("production", drill)["spec"]["jobTemplate"]["spec"]
    found: dict[str, Any] = job["template"]["spec"]
    return found


def test_it_mounts_the_teams_checkpoints_and_cannot_write_to_them() -> None:
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
        "mountPath": spec.CHECKPOINT_MOUNT,
        "readOnly": True,
    }


def test_it_is_restricted_like_the_pods_of_runs_and_has_no_token() -> None:
    spec_ = pod_of(DRILL)
    assert spec_["securityContext"] == pod_security.pod_security_with_volumes()
    assert spec_["containers"][0]["securityContext"] == training_pod.restricted()
    assert spec_["automountServiceAccountToken"] is False
    assert spec_["serviceAccountName"] == naming.SERVICE_ACCOUNT


def test_it_has_room_for_what_it_restores_and_asks_for_no_gpu() -> None:
    spec_ = pod_of(DRILL)
    amounts = spec_["containers"][0]["resources"]
    assert amounts == {
        "requests": {"cpu": "1", "memory": "9Gi"},
        "limits": {"cpu": "1", "memory": "9Gi"},
    }
    [scratch] = [v for v in spec_["volumes"] if v["name"] == "scratch"]
    assert scratch["emptyDir"] == {"sizeLimit": "9Gi"}
    assert "tolerations" not in spec_


def test_it_runs_the_program_of_the_trainers_image_on_the_teams_runs() -> None:
    stores = ("s3://acme-checkpoints/production",)
    drill = RestoreDrill(image=IMAGE, schedule="0 0 * * 0", runs=5, largest=100, stores=stores)
    [container] = pod_of(drill)["containers"]
    assert container["image"] == IMAGE
    assert container["workingDir"] == spec.WORKSPACE
    assert container["command"] == [
        *("python", "-m", "training.drills", spec.CHECKPOINT_MOUNT, *stores),
        *("--scratch", "/scratch", "--newest", "5", "--largest", "100"),
    ]


def test_a_failed_drill_is_a_failed_job_and_a_lost_node_is_none() -> None:
    job = restore_drill.cron_job("production", DRILL)["spec"]["jobTemplate"]["spec"]
    assert job["backoffLimit"] == 0
    [rule] = job["podFailurePolicy"]["rules"]
    assert rule["action"] == "Ignore" and rule["onPodConditions"][0]["type"] == "DisruptionTarget"


def test_two_drills_never_run_at_once_and_old_jobs_go() -> None:
    spec_ = restore_drill.cron_job("production", DRILL)["spec"]
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
def test_production_teams_have_one_unless_they_say_otherwise(
    tier: str, has_image: bool, enabled: bool | None, wanted: bool
) -> None:
    section = RestoreDrillConfig(enabled=enabled)
    assert section.wanted(tier, has_image=has_image) is wanted


def test_a_production_team_that_names_an_image_wants_a_drill_in_it() -> None:
    section = RestoreDrillConfig(image=IMAGE)
    assert section.wanted("production", has_image=False)
    assert not section.wanted("research", has_image=False)


@pytest.mark.parametrize("schedule", ["17 3 * * *", "*/15 0-6,22 1 1-12/2 0,6"])
def test_a_schedule_is_what_cron_takes(schedule: str) -> None:
    assert RestoreDrillConfig(schedule=schedule).schedule == schedule


@pytest.mark.parametrize(
    "schedule",
    [
        *("daily", "60 3 * * *", "17 3 * *", "17 5-3 * * *", "@daily"),
        # Kubernetes knows no eighth day of a week, no step of 0, and no digits but ASCII's.
        *("17 3 * * 7", "*/0 * * * *", "\N{ARABIC-INDIC DIGIT ONE} 3 * * *"),
    ],
)
def test_a_schedule_that_cron_does_not_take_is_refused(schedule: str) -> None:
    with pytest.raises(ValueError, match=re.escape("such as 17 3 * * *")):
        RestoreDrillConfig(schedule=schedule)
