"""Members of teams: IAM roles of the stack's account, and groups of the identity provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infra.domain import naming
from infra.sections.teams.model import TeamConfig


def groups(team: TeamConfig) -> dict[str, tuple[str, ...]]:
    """Return the identity provider's groups of a team by role."""
    return {
        role: tuple(one for one in members if not is_role(one))
        for role, members in team.members.by_role().items()
    }


def access_groups(teams: Sequence[TeamConfig]) -> Mapping[str, tuple[str, ...]]:
    """Return by the ARN of an IAM role the Kubernetes groups that its access entry names."""
    found: dict[str, list[str]] = {}
    for team in teams:
        for role, members in team.members.by_role().items():
            for one in filter(is_role, members):
                found.setdefault(one, []).append(naming.group(team.name, role))
    return {arn: tuple(names) for arn, names in found.items()}


def is_role(member: str) -> bool:
    """Whether a member is an IAM role, not a group."""
    return member.startswith("arn:")
