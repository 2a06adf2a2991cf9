"""Copies of results: a known image, a bucket of the team's own, and credentials for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from infra.config.errors import ConfigIssue, did_you_mean, one_of, shown
from infra.config.partial import Check, PartialStack
from infra.config.sections.storage import StorageKind, read_storage
from infra.config.sections.teams.model import TeamConfig, read_teams
from infra.config.sections.teams.restore_drill import image_issues, images
from infra.sites.aws.bucket_access import team_buckets, team_prefix


def _copied(stack: PartialStack) -> Iterator[tuple[str, TeamConfig]]:
    """Yield each team whose results are copied, and the path of its section."""
    known, exported = images(stack), _exported(stack)
    for index, team in read_teams(stack):
        own = team.results
        if own.wanted(exported=exported, own_bucket=stack.on_eks, has_image=own.image in known):
            yield f"teams[{index}].results", team


def _exported(stack: PartialStack) -> bool:
    storage = read_storage(stack)
    return storage is not None and storage.kind is StorageKind.FSX


def check_results_image(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require an image of the stack, or a digest in an allowed registry."""
    for place, team in _copied(stack):
        yield from image_issues(stack, place, team.results.image)


def check_results_store(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require a bucket: on AWS below the team's prefix, unless a secret has credentials for another."""
    exported = _exported(stack)
    for place, team in _copied(stack):
        own = team.results
        if exported:
            yield ConfigIssue(
                path=place,
                code="results-exported",
                problem="results are copied although storage.fsx exports them",
                valid="requires another storage; FSx for Lustre exports to the team's prefix by itself",
                action="remove the section",
            )
        elif own.store is None and not stack.on_eks:
            yield ConfigIssue(
                path=f"{place}.store",
                code="missing",
                problem="missing",
                valid="must be s3://BUCKET/PREFIX: the stack has no buckets of its own",
                action="add it, or set enabled: false",
            )
        elif own.store and stack.on_eks and own.secret_name is None:
            yield from _outside_prefix(stack, f"{place}.store", own.store, team.name)


def _outside_prefix(stack: PartialStack, path: str, store: str, team: str) -> Iterator[ConfigIssue]:
    storage = read_storage(stack)
    if storage is None or storage.buckets is None:
        return
    names = team_buckets(storage.buckets.prefix)
    writable = [f"s3://{name}/{team_prefix(team)}" for name in (names.checkpoints, names.artifacts)]
    if not f"{store}/".startswith(tuple(writable)):
        yield ConfigIssue(
            path=path,
            code="foreign-prefix",
            problem=f"{shown(store)} is outside of what the role of team {team} may write",
            valid=f"must be below {one_of(writable)}, or have a secretName with credentials",
            action="correct it, or add secretName",
        )


def check_results_are_apart(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Reject two teams with the same store: their runs may have the same id."""
    first: dict[str, str] = {}
    for place, team in _copied(stack):
        if store := team.results.store:
            other = first.setdefault(store, place)
            if other != place:
                yield ConfigIssue(
                    path=f"{place}.store",
                    code="duplicate",
                    problem=f"{shown(store)} is already used by {other}",
                    valid="stores must be unique",
                    action="give each team a prefix of its own",
                )


def check_results_secret(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require the secret to be one of the team's."""
    for place, team in _copied(stack):
        wanted = team.results.secret_name
        known: dict[str, Any] = {secret.name: secret for secret in team.secrets}
        if wanted is not None and wanted not in known:
            yield ConfigIssue(
                path=f"{place}.secretName",
                code="unknown-name",
                problem=f"unknown secret {shown(wanted)}",
                valid=f"must be one of the team's secrets ({one_of(known)})",
                action=did_you_mean(wanted, known, "add it to the team's secrets"),
            )


CHECKS: Final[tuple[Check, ...]] = (
    check_results_image,
    check_results_store,
    check_results_are_apart,
    check_results_secret,
)
