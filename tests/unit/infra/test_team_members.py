"""Members of teams: access entries of EKS for IAM roles, RBAC for groups of the identity provider."""

from __future__ import annotations

import copy
from typing import Any

from infra.config import parse
from infra.sections.teams import access_groups
from infra.tenancy import access, shared_view
from tests.golden.example_runs import stack_values
from tests.unit.infra.example_eks import stack_values as eks_values

ROLE = "arn:aws:iam::111122223333:role/aws-reserved/sso.amazonaws.com/AWSReservedSSO_ml_0123456789abcdef"


def _with(values: dict[str, Any], *of_teams: dict[str, list[str]]) -> Any:
    values = copy.deepcopy(values)
    for team, found in zip(values["teams"], of_teams, strict=False):
        team["members"] = found
    return parse(values)


def test_a_role_of_two_teams_has_one_access_entry_with_both_groups() -> None:
    values = copy.deepcopy(eks_values())
    values["teams"].append(values["teams"][0] | {"name": "vision", "guaranteed": {}})
    config = _with(values, {"researchers": [ROLE]}, {"leads": [ROLE, "oncall"]})
    first = config.teams[0].name
    assert access_groups(config.teams) == {
        ROLE: (f"trainyard:{first}:researcher", "trainyard:vision:lead")
    }


def test_groups_of_the_identity_provider_are_bound_beside_the_platforms_own() -> None:
    config = _with(stack_values(), {"researchers": ["ml-research"], "leads": ["Heads of ML"]})
    [research, production] = config.teams
    assert research.groups == {"researcher": ("ml-research",), "lead": ("Heads of ML",)}
    assert not any(production.groups.values())
    binding = access.role_binding("lead", "research", research.groups["lead"])
    assert [one["name"] for one in binding["subjects"]] == [
        "trainyard:research:lead",
        "Heads of ML",
    ]
    assert {one["kind"] for one in binding["subjects"]} == {"Group"}


def test_they_see_nodes_and_queues_and_no_policies() -> None:
    config = _with(stack_values(), {"researchers": ["ml-research"]})
    for role, seen in ((shared_view.FLEET, True), (shared_view.AUDIT, False)):
        subjects = shared_view.binding(role, config.teams)["subjects"]
        assert ("ml-research" in [one["name"] for one in subjects]) == seen
