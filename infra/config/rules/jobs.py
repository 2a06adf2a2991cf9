"""Scheduled jobs: restore drills and copies of results of teams, and checks of the nodes."""

from __future__ import annotations

from collections.abc import Iterator

from infra.config.model import StackConfig
from infra.config.rules.images import check_image
from infra.domain import quantity
from infra.domain.pools import Workload
from infra.sections.errors import ConfigIssue, did_you_mean, issue, one_of, shown
from infra.sections.storage import StorageKind
from infra.sections.teams import TeamConfig
from infra.sites.aws.bucket_access import team_buckets, team_prefix
from infra.tenancy.restore_drill import OVERHEAD
from infra.validation.jobs import NAME_MAX, checked


def check_restore_drills(stack: StackConfig) -> Iterator[ConfigIssue]:
    """Require an image, and a restore size that fits a node of the CPU pool and the team's quota."""
    cpu = next((pool for pool in stack.pools if pool.workload is Workload.CPU), None)
    for index, team in enumerate(stack.teams):
        drill, place = team.restore_drill, f"teams[{index}].restoreDrill"
        if not drill.wanted(team.tier, has_image=drill.image in stack.images):
            continue
        otherwise = "add it to images, or set enabled: false"
        yield from check_image(stack, f"{place}.image", drill.image, otherwise)
        if cpu is None:
            continue
        node = min(one.training_memory for one in cpu.types)
        bound = min(node, quantity.bytes_(team.quota.memory)) - OVERHEAD
        if quantity.bytes_(drill.largest) > bound:
            yield issue(
                "restore-drill-too-large",
                f"{place}.largest",
                f"{shown(drill.largest)} exceeds the memory of {cpu.name} nodes or of the team's "
                "quota",
                f"must be at most {max(0, bound) // quantity.GIB}Gi",
                "lower it, or choose larger types for the CPU pool",
            )


def check_results(stack: StackConfig) -> Iterator[ConfigIssue]:
    """Require an image, a bucket that the team may write, apart from those of others, and its credentials."""
    exported = stack.storage.kind is StorageKind.FSX
    first: dict[str, str] = {}
    for index, team in enumerate(stack.teams):
        own, place, on_eks = team.results, f"teams[{index}].results", stack.eks is not None
        if not own.wanted(
            exported=exported, own_bucket=on_eks, has_image=own.image in stack.images
        ):
            continue
        otherwise = "add it to images, or set enabled: false"
        yield from check_image(stack, f"{place}.image", own.image, otherwise)
        if exported:
            yield issue(
                "results-exported",
                place,
                "results are copied although storage.fsx exports them",
                "requires another storage: FSx for Lustre exports to the team's prefix by itself",
                "remove the section",
            )
        elif own.store is None and not on_eks:
            yield issue(
                "missing",
                f"{place}.store",
                "missing",
                "must be s3://BUCKET/PREFIX: the stack has no buckets of its own",
                "add it, or set enabled: false",
            )
        elif on_eks:
            yield from _check_prefix(stack, f"{place}.store", team)
        if own.store and first.setdefault(own.store, place) != place:
            yield issue(
                "duplicate",
                f"{place}.store",
                f"{shown(own.store)} is already used by {first[own.store]}",
                "stores must be unique",
                "give each team a prefix of its own",
            )
        known, otherwise = [one.name for one in team.secrets], "add it to the team's secrets"
        if own.secret_name is not None and own.secret_name not in known:
            yield issue(
                "unknown-name",
                f"{place}.secretName",
                f"unknown secret {shown(own.secret_name)}",
                f"must be one of the team's secrets ({one_of(known)})",
                did_you_mean(own.secret_name, known, otherwise),
            )


def _check_prefix(stack: StackConfig, path: str, team: TeamConfig) -> Iterator[ConfigIssue]:
    """Require a store below the team's prefix, unless a secret has credentials for another."""
    store, buckets = team.results.store, stack.storage.buckets
    if store is None or team.results.secret_name or buckets is None:
        return
    names = team_buckets(buckets.prefix)
    writable = [
        f"s3://{name}/{team_prefix(team.name)}" for name in (names.checkpoints, names.artifacts)
    ]
    if not f"{store}/".startswith(tuple(writable)):
        yield issue(
            "foreign-prefix",
            path,
            f"{shown(store)} is outside of what the role of team {team.name} may write",
            f"must be below {one_of(writable)}, or have a secretName with credentials",
            "correct it, or add secretName",
        )


def check_validation(stack: StackConfig) -> Iterator[ConfigIssue]:
    """Require an image, names short enough for CronJobs, and bandwidths of pools with a collective check."""
    section = stack.validation
    if section is None:
        return
    yield from check_image(
        stack, "validation.image", section.image, f"add {section.image} to images"
    )
    found = checked(stack.pools)
    if section.weekly and not any(pool.min for pool in found):
        yield issue(
            "weekly-without-nodes",
            "validation.weekly",
            "no GPU pool always has nodes",
            "requires a GPU pool with min above 0: the weekly check starts no nodes",
            "remove it, or raise the min of a pool",
        )
    gangs = {pool.name for pool in found if pool.max > 1}
    for index, pool in enumerate(stack.node_pools):
        if pool.name in gangs and len(pool.name) > NAME_MAX:
            yield issue(
                "name-too-long",
                f"nodePools[{index}].name",
                f"{len(pool.name)} characters",
                f"must be at most {NAME_MAX} with validation, whose CronJobs are named after pools",
                "shorten it",
            )
    for name in section.min_gbps:
        if name not in gangs:
            yield issue(
                "no-collective-check",
                f"validation.minGBps.{name}",
                f"{shown(name)} has no collective check",
                f"must be one of {one_of(gangs)}",
                did_you_mean(name, gangs, "remove it"),
            )
