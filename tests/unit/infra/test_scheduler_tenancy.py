"""Team namespace under each scheduler: admission policies, RBAC and quota."""

from __future__ import annotations

from typing import Any

import pytest

from infra.config import arguments, parse, platform_record
from infra.domain import naming
from infra.domain.scheduler import Scheduler
from infra.queueing import yunikorn
from infra.queueing.backends import backend
from infra.tenancy import access, admission, limits
from tests.golden.example_runs import platform_of, scheduler_values


def policies_of(scheduler: Scheduler) -> dict[str, dict[str, Any]]:
    """Policies of the example stack by name, without the project's prefix."""
    found = admission.policies(arguments.admission(parse(scheduler_values(scheduler))))
    return {m["metadata"]["name"].removeprefix(f"{naming.PROJECT}-"): m for m in found}


def expressions(policy: dict[str, Any]) -> str:
    """All expressions of a policy."""
    return "\n".join(rule["expression"] for rule in policy["spec"]["validations"])


def rules(role: str, scheduler: Scheduler) -> list[dict[str, Any]]:
    """Rules of a team's role about groups of pods."""
    made = access.role(role, "research", backend(scheduler).pod_group_api)
    return [rule for rule in made["rules"] if "podgroups" in rule["resources"]]


def test_each_scheduler_has_its_queue_policies() -> None:
    own = {"queue", "queue-name", "admission"}
    found = {scheduler: own & policies_of(scheduler).keys() for scheduler in Scheduler}
    assert found[Scheduler.VOLCANO] == found[Scheduler.YUNIKORN] == {"queue", "queue-name"}
    assert found[Scheduler.NATIVE] == set()
    assert "queue" in found[Scheduler.KUEUE] and "queue-name" not in found[Scheduler.KUEUE]


def test_all_other_policies_are_the_same_under_every_scheduler() -> None:
    common = set.intersection(*(set(policies_of(scheduler)) for scheduler in Scheduler))
    assert set(policies_of(Scheduler.NATIVE)) == common
    assert len(common) >= 8


@pytest.mark.parametrize("scheduler", [Scheduler.VOLCANO, Scheduler.YUNIKORN])
def test_run_queue_matches_the_queue_that_the_policy_requires(
    scheduler: Scheduler,
) -> None:
    named = platform_of(scheduler).teams["research"].local_queue
    prefix = named.removesuffix("research")
    assert f"'{prefix}' + variables.team" in expressions(policies_of(scheduler)["queue-name"])


def test_yunikorn_placeholders_come_from_an_allowed_registry() -> None:
    registry = yunikorn.PLACEHOLDER.partition("@")[0]
    found = {
        scheduler: registry in arguments.admission(parse(scheduler_values(scheduler))).registries
        for scheduler in Scheduler
    }
    assert found == {scheduler: scheduler is Scheduler.YUNIKORN for scheduler in Scheduler}


@pytest.mark.parametrize("scheduler", [Scheduler.VOLCANO, Scheduler.NATIVE])
def test_only_deployers_may_create_pod_groups(scheduler: Scheduler) -> None:
    for role in access.ROLE_RULES:
        [rule] = rules(role, scheduler)
        assert rule["apiGroups"] == [backend(scheduler).pod_group_api]
        assert ("create" in rule["verbs"]) == (role != "auditor")
        assert "get" in rule["verbs"]


@pytest.mark.parametrize("scheduler", [Scheduler.KUEUE, Scheduler.YUNIKORN])
def test_no_role_may_access_pod_groups_that_runs_do_not_create(scheduler: Scheduler) -> None:
    assert [rules(role, scheduler) for role in access.ROLE_RULES] == [[]] * len(access.ROLE_RULES)


@pytest.mark.parametrize("scheduler", Scheduler)
def test_namespace_quota_bounds_pods_unless_pending_pods_wait_in_a_queue(
    scheduler: Scheduler,
) -> None:
    config = parse(scheduler_values(scheduler))
    without_identity: Any = {}
    team = arguments.teams(
        config, platform_record.platform(config, "s"), {}, without_identity, _NoStorage()
    )["research"]
    hard = limits.resource_quota("research", team.team.quota, of_pods=not team.queue_holds_quota)
    counts = f"requests.{naming.GPU}" in hard["spec"]["hard"]
    assert counts == (scheduler in (Scheduler.KUEUE, Scheduler.NATIVE))
    assert hard["spec"]["hard"]["services.nodeports"] == "0"


class _NoStorage:
    """Storage without volumes."""

    def volumes(self, team: str) -> Any:
        return None
