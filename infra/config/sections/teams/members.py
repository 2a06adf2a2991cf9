"""Members of teams: IAM roles of the stack's account, and groups of the identity provider."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pydantic.alias_generators import to_camel

from infra.config.errors import ConfigIssue
from infra.config.partial import UNKNOWN_ACCOUNT, Check, PartialStack
from infra.config.sections.aws import read_aws
from infra.config.sections.cluster import read_eks
from infra.config.sections.teams.model import TeamConfig, read_teams
from infra.domain import naming


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


def _members(stack: PartialStack) -> Iterator[tuple[str, int, str]]:
    """Yield each member's path, the index of its team, and the member."""
    for number, team in read_teams(stack):
        for key, members in (
            ("researchers", team.members.researchers),
            ("leads", team.members.leads),
        ):
            for index, one in enumerate(members):
                yield f"teams[{number}].members.{key}[{index}]", number, one


def check_members_once(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require each member of a team in one place, and no role that the cluster's access names."""
    first: dict[tuple[int, str], str] = {}
    eks = read_eks(stack)
    taken = {
        arn: f"cluster.{to_camel(key)}[{index}]"
        for key in ("admins", "deployers", "viewers", "drift_detectors")
        for index, arn in enumerate(getattr(eks, key) if eks else ())
    }
    for path, number, one in _members(stack):
        other = first.setdefault((number, one), path)
        if other != path:
            yield ConfigIssue(
                path=path,
                code="duplicate",
                problem=f"already listed as {other}",
                valid="a member of a team must be listed once; a lead may do all that a researcher may",
                action="remove one of them",
            )
        elif one in taken:
            yield ConfigIssue(
                path=path,
                code="duplicate",
                problem=f"already listed as {taken[one]}",
                valid="a cluster has one access entry per role",
                action="remove one of them, or use another role",
            )


def check_member_roles(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require IAM roles of the stack's account, and only where the stack creates the cluster."""
    aws = read_aws(stack)
    for path, _, one in _members(stack):
        if not is_role(one):
            continue
        if stack.provider == "existing":
            yield ConfigIssue(
                path=path,
                code="role-without-eks",
                problem="an IAM role, on a cluster that the stack does not create",
                valid="must be a group of the cluster's identity provider",
                action="name a group, and map the role to it in the cluster's own access configuration",
            )
            continue
        account = one.split(":")[4]
        if aws and aws.account not in (account, UNKNOWN_ACCOUNT):
            yield ConfigIssue(
                path=path,
                code="role-account",
                problem=f"a role of account {account}",
                valid=f"must be a role of account {aws.account} (aws.account)",
                action="name a role of that account, which people of other accounts may assume",
            )


CHECKS: Final[tuple[Check, ...]] = (
    check_members_once,
    check_member_roles,
)
