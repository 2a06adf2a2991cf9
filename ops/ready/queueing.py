"""Stage 8: a Job of higher priority preempts another, which is then readmitted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
        yield _run_pair(session.jobs, low, high)
    except CREATE_ERRORS as error:
        yield failed(SUBJECT, *describe_create_error(error))


def _run_pair(jobs: Jobs, low: Json, high: Json) -> Check:
    """Run the low-priority and the high-priority Job. Raises one of CREATE_ERRORS."""
    pair = _PreemptionTest(jobs=jobs, low=jobs.start(low))
    try:
        return pair.check(high)
    finally:
        jobs.delete(pair.low)


@dataclass(frozen=True, kw_only=True)
class _PreemptionTest:
    """A low-priority Job that runs, and the check that a high-priority one preempts it."""

    jobs: Jobs
    low: StartedJob

    def check(self, template: Json) -> Check:
        if not self._await(self._runs, self.low):
            return self._stuck(self.low, "was never admitted")
        high = self.jobs.start(template)
        try:
            return self._preempted(high)
        finally:
            self.jobs.delete(high)

    def _preempted(self, high: StartedJob) -> Check:
        if not self._await(self._began, high):
            return self._stuck(high, f"did not preempt {self.low.name}")
        # Read the Workload's history: a short Job can end, and the other resume, between two polls.
        why = preemption_reason(self.jobs.workload(self.low))
        if not why:
            if self._ended(self.low):
                return self._stuck(self.low, f"ended before {high.name} started")
            return failed(
                SUBJECT,
                f"{high.name} was admitted alongside {self.low.name}: nothing was preempted",
                "the quota of the validation queue must fit only one of them:"
                " kubectl describe clusterqueues",
            )
        if not self._await(self._ended, high):
            return self._stuck(high, "was admitted and did not end")
        if self._ended(high) != "Complete":
            return self._stuck(high, "was admitted and failed")
        if not self._await(self._runs, self.low):
            return self._stuck(self.low, "was not readmitted after its preemption")
        return passed(
            SUBJECT,
            f"{self.low.name} was admitted, preempted for {high.name} ({why}), and admitted again",
        )

    def _await(self, holds: Callable[[StartedJob], object], job: StartedJob) -> bool:
        """Whether the condition holds within the time limit."""
        return self.jobs.poller.wait_for(lambda: True if holds(job) else None) is True

    def _runs(self, job: StartedJob) -> bool:
        """Whether it holds quota."""
        found = self.jobs.read(job)
        return (
            found is not None and not found["spec"].get("suspend") and not terminal_condition(found)
        )

    def _began(self, job: StartedJob) -> bool:
        """Whether it holds quota or has ended."""
        return self._runs(job) or bool(self._ended(job))

    def _ended(self, job: StartedJob) -> str:
        found = self.jobs.read(job)
        return terminal_condition(found) if found else ""

    def _stuck(self, job: StartedJob, what: str) -> Check:
        found = self.jobs.read(job)
        if not found:
            return failed(SUBJECT, f"{job.name} {what}: it was deleted", "try again")
        cause, remedy = job_diagnosis.diagnose(
            found, self.jobs.pods(job), (), self.jobs.workload(job), self.jobs.poller.limit_s
        )
        return failed(SUBJECT, f"{job.name} {what}: {cause}", remedy)
