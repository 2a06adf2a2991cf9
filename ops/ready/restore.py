"""Rung 7: a team's newest checkpoints come back, by the drill that the platform runs on a schedule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ops.objects import Json
from ops.ready.climb import Climb
from ops.ready.jobs import CRON_JOBS
from ops.ready.outcome import Check, Outcome, skipped
from ops.ready.probes import judge
from ops.ready.stack import Team

DRILL: Final = "restore-drill"
"""Name of the CronJob in a team's namespace."""
PRODUCTION: Final = "production"
_TOLD: Final = ("runs", "restored", "bytes")


def look(climb: Climb) -> Iterator[Check]:
    """Every production team that has a drill, else the first team that has one."""
    drills = _drills(climb)
    chosen = [(team, drill) for team, drill in drills if team.tier == PRODUCTION] or drills[:1]
    if not chosen:
        whose = climb.team.subject if climb.team else "teams"
        yield skipped(
            whose, f"no cronjob/{DRILL}; `restoreDrill` of a team in the stack file makes one"
        )
    for team, drill in chosen:
        yield _of(climb, team, drill)


def _drills(climb: Climb) -> Sequence[tuple[Team, Json]]:
    teams = [climb.team] if climb.team else climb.stack.teams
    found = [(team, climb.cluster.get(CRON_JOBS, DRILL, team.namespace)) for team in teams]
    return [(team, drill) for team, drill in found if drill]


def _of(climb: Climb, team: Team, drill: Json) -> Check:
    check = judge(team.subject, climb.jobs.run(drill), _TOLD)
    if check.outcome is Outcome.PASSED and check.facts.get("runs") == 0:
        return skipped(check.subject, "no run of it has a checkpoint yet")
    return check
