"""Stages that start a Job: on each pool a smoke test, collectives and trainings; in teams a restore drill."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from infra.domain.tier import TIERS
from ops.logs import sanitize
from ops.objects import Json
from ops.ready.job_diagnosis import PodResult, shared_facts
from ops.ready.jobs import (
    CRON_JOBS,
    JobResult,
    Session,
    is_schedulable,
    parallelism,
    with_parallelism,
)
from ops.ready.results import Check, Outcome, failed, proven, skipped
from ops.ready.stack_facts import NAMESPACE, Pool, Team
from ops.snapshot import pluralize

SMOKE_KIND: Final = "smoke"
_MEASURED: Final = ("bandwidth_gbps", "tokens_per_s")


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A check that runs a pool's template Job."""

    kind: str
    """Value of the template's validation label."""
    reported: tuple[str, ...]
    """Facts of its results that are printed."""
    all_nodes: bool = False
    """Whether it runs on every free node; else on as many as its template has."""
    many: bool = False
    """Whether it requires at least two nodes."""

    def __call__(self, session: Session) -> Iterator[Check]:
        """Check every pool that has, or must have, a template."""
        for pool in session.pools:
            if found := self._of(session, pool):
                yield found

    def _of(self, session: Session, pool: Pool) -> Check | None:
        template = session.template(self.kind, pool)
        if template is None:
            return self._without(pool)
        free, least = session.free(pool), min(parallelism(template), 2 if self.many else 1)
        if not session.allow_scale_up and len(free) < least:
            return skipped(pool.subject, _too_few_nodes(session, pool, least, len(free)))
        if self.all_nodes:
            template = with_parallelism(template, max(least, len(free)))
        ended = session.jobs.run(template)
        if ended.preempted:
            return skipped(pool.subject, "runs of higher priority preempted it: try again later")
        if self.kind == SMOKE_KIND:
            session.smoke[pool.name] = ended.lines
        return check_result(pool.subject, ended, self.reported, of_gpus=pool)

    def _without(self, pool: Pool) -> Check | None:
        if pool.simulated:
            return skipped(pool.subject, "its nodes are simulated (kwok) and run no containers")
        if not pool.gpu:
            return None
        if self.many and pool.no_gang_reason:
            return skipped(pool.subject, pool.no_gang_reason)
        return failed(
            pool.subject,
            f"cronjob/{self.kind}-{pool.name} -n {NAMESPACE}: not found",
            "add `validation` to the stack file; `pulumi up` creates it",
        )


SMOKE: Final = Probe(
    kind=SMOKE_KIND, reported=("device", "model", "driver", "cuda", "nccl"), all_nodes=True
)
COLLECTIVE: Final = Probe(
    kind="collective",
    reported=("bandwidth_gbps", "world_size", "transport", "interface", "mtu", "memlock"),
    all_nodes=True,
    many=True,
)
SINGLE_NODE: Final = Probe(kind="train-single", reported=("device", "world_size", "tokens_per_s"))
MULTI_NODE: Final = Probe(
    kind="train-multi", reported=("device", "world_size", "tokens_per_s"), many=True
)


def _too_few_nodes(session: Session, pool: Pool, least: int, free: int) -> str:
    """Return why its pods would wait for nodes."""
    there = len([node for node in session.nodes(pool) if is_schedulable(node)])
    start = f"--pool {pool.name} lets its Jobs scale it up"
    if not there:
        return f"it is scaled to zero ({pool.min} to {pool.max} nodes); {start}"
    if there < least:
        return f"{pluralize(least, 'node')} required, {there} ready; {start}"
    return f"{pluralize(least, 'node')} required; {there - free} of {there} in use: try again later"


def check_result(
    subject: str, ended: JobResult, reported: tuple[str, ...], *, of_gpus: Pool | None = None
) -> Check:
    """Convert a Job's result to a check. One of a pool's GPUs is simulated where none of them computed it."""
    if bad := [line for line in ended.lines if not line.ok]:
        return failed(
            subject,
            _failure_cause(bad),
            bad[0].remedy or "see its log",
            **_combined_facts(ended),
        )
    if not ended.completed:
        words = last_log_line(ended.log)
        return failed(
            subject, f"{ended.cause}{f'; last log line: {words}' if words else ''}", ended.remedy
        )
    if not ended.lines:
        return failed(
            subject,
            "its pods succeeded but printed no result",
            "use a trainer image of the platform's version: `images` in the stack file",
        )
    shared = PodResult(ok=True, pod="", facts=_combined_facts(ended))
    where = sorted({line.node for line in ended.lines if line.node})
    seen = f"{pluralize(len(ended.lines), 'pod')} on {', '.join(where)}" if where else ""
    facts = shared.text(*reported)
    return proven(
        subject,
        ": ".join(filter(None, (seen, facts))) or "passed",
        hardware=of_gpus is None or is_proven(of_gpus, ended.lines),
        **shared.facts,
    )


def is_proven(pool: Pool, lines: Iterable[PodResult]) -> bool:
    """Whether results are of the pool's GPUs: of machines, and of no pod that computed on its CPU."""
    return pool.hardware and all(line.facts.get("device") != "cpu" for line in lines)


def _failure_cause(bad: list[PodResult]) -> str:
    first = bad[0]
    more = f" (and {pluralize(len(bad) - 1, 'other pod')})" if len(bad) > 1 else ""
    return f"{first.node or first.pod}: {first.cause or 'failed without a cause'}{more}"


def _combined_facts(ended: JobResult) -> dict[str, Any]:
    """Return the shared facts, the nodes, and the minimum of each measurement."""
    facts = shared_facts(ended.lines)
    for name in _MEASURED:
        if measured := [line.facts[name] for line in ended.lines if name in line.facts]:
            facts[name] = min(measured)
    if nodes := sorted({line.node for line in ended.lines if line.node}):
        facts["nodes"] = nodes
    return facts


def last_log_line(log: str) -> str:
    """Return the last non-empty line of a log, sanitized."""
    reported = [text for line in log.splitlines() if (text := sanitize(line))]
    return reported[-1] if reported else ""


DRILL: Final = "restore-drill"
"""Name of the drill's CronJob in a team's namespace."""
_REPORTED: Final = ("runs", "restored", "bytes")


def check_teams(session: Session) -> Iterator[Check]:
    """Check every team that always requires drills; else the first other team with a checkpoint."""
    drills = _team_drills(session)
    if not drills:
        whose = session.team.subject if session.team else "teams"
        yield skipped(whose, f"no cronjob/{DRILL}; add `restoreDrill` to a team in the stack file")
    tried = False
    for team, drill in sorted(drills, key=lambda one: not _always_drilled(one[0])):
        if tried and not _always_drilled(team):
            return
        check = _run_drill(session, team, drill)
        tried |= check.outcome is not Outcome.SKIPPED
        yield check


def _always_drilled(team: Team) -> bool:
    return team.tier in TIERS and TIERS[team.tier].restore_drill_by_default


def _team_drills(session: Session) -> Sequence[tuple[Team, Json]]:
    teams = [session.team] if session.team else session.stack.teams
    found = [(team, session.cluster.get(CRON_JOBS, DRILL, team.namespace)) for team in teams]
    return [(team, drill) for team, drill in found if drill]


def _run_drill(session: Session, team: Team, drill: Json) -> Check:
    check = check_result(team.subject, session.jobs.run(drill), _REPORTED)
    if check.outcome is Outcome.PASSED and check.facts.get("runs") == 0:
        return skipped(check.subject, "no run has a checkpoint yet")
    return check
