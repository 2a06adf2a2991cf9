"""Stage 7: run the teams' restore drills, which restore their newest checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from infra.domain.tier import TIERS
from ops.objects import Json
from ops.ready.context import Session
from ops.ready.jobs import CRON_JOBS
from ops.ready.outcome import Check, Outcome, skipped
from ops.ready.probes import check_result
from ops.ready.stack_facts import Team

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
