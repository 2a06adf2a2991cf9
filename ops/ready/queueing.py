"""Stage 8: a Job of higher priority preempts another, which is then readmitted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from ops.objects import Json
from ops.ready import job_diagnosis
from ops.ready.jobs import (
    CREATE_ERRORS,
    Jobs,
    Session,
    StartedJob,
    describe_create_error,
    preemption_reason,
    terminal_condition,
)
from ops.ready.results import Check, failed, passed, skipped
from ops.ready.stack_facts import NAMESPACE

LOW, HIGH = "queueing-low", "queueing-high"
SUBJECT: Final = "queue"
KUEUE: Final = "kueue"


def check_queue(session: Session) -> Iterator[Check]:
    """Check preemption in the queue of the templates."""
    if session.stack.scheduler != KUEUE:
        yield skipped(
            SUBJECT,
            f"this stage supports Kueue only, not {session.stack.scheduler}: docs/queues.md#another-scheduler",
        )
        return
    low, high = session.template(LOW), session.template(HIGH)
    if low is None or high is None:
        name = LOW if low is None else HIGH
        yield failed(
            SUBJECT,
            f"cronjob/{name} -n {NAMESPACE}: not found",
            "add `validation` to the stack file; `pulumi up` creates it",
        )
        return
    try:
        yield _check_preemption(session.jobs, low, high)
    except CREATE_ERRORS as error:
        yield failed(SUBJECT, *describe_create_error(error))
    finally:
        session.jobs.clear()


def _check_preemption(jobs: Jobs, low_template: Json, high_template: Json) -> Check:
    """Start a low-priority Job, and a high-priority one while it runs. Raises one of CREATE_ERRORS."""

    def ended(job: StartedJob) -> str:
        found = jobs.read(job)
        return terminal_condition(found) if found else ""

    def runs(job: StartedJob) -> bool:
        """Whether it holds quota."""
        found = jobs.read(job)
        return (
            found is not None and not found["spec"].get("suspend") and not terminal_condition(found)
        )

    def awaited(holds: Callable[[], object]) -> bool:
        return jobs.poller.wait_for(lambda: True if holds() else None) is True

    def stuck(job: StartedJob, what: str) -> Check:
        found = jobs.read(job)
        if not found:
            return failed(SUBJECT, f"{job.name} {what}: it was deleted", "try again")
        cause, remedy = job_diagnosis.diagnose(
            found, jobs.pods(job), (), jobs.workload(job), jobs.poller.limit_s
        )
        return failed(SUBJECT, f"{job.name} {what}: {cause}", remedy)

    low = jobs.start(low_template)
    if not awaited(lambda: runs(low)):
        return stuck(low, "was never admitted")
    high = jobs.start(high_template)
    if not awaited(lambda: runs(high) or ended(high)):
        return stuck(high, f"did not preempt {low.name}")
    # Read the Workload's history: a short Job can end, and the other resume, between two polls.
    why = preemption_reason(jobs.workload(low))
    if not why:
        if ended(low):
            return stuck(low, f"ended before {high.name} started")
        return failed(
            SUBJECT,
            f"{high.name} was admitted alongside {low.name}: nothing was preempted",
            "the quota of the validation queue must fit only one of them:"
            " kubectl describe clusterqueues",
        )
    if not awaited(lambda: ended(high)):
        return stuck(high, "was admitted and did not end")
    if ended(high) != "Complete":
        return stuck(high, "was admitted and failed")
    if not awaited(lambda: runs(low)):
        return stuck(low, "was not readmitted after its preemption")
    return passed(
        SUBJECT,
        f"{low.name} was admitted, preempted for {high.name} ({why}), and admitted again",
    )
