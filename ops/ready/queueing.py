"""Rung 8: a run that matters more gets its place, and the one that had it comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from ops.objects import Json
from ops.ready import job_diagnosis
from ops.ready.context import Session
from ops.ready.jobs import (
    CREATE_ERRORS,
    Jobs,
    StartedJob,
    describe_create_error,
    preemption_reason,
    terminal_condition,
)
from ops.ready.outcome import Check, failed, passed, skipped
from ops.ready.stack_facts import NAMESPACE

LOW, HIGH = "queueing-low", "queueing-high"
SUBJECT: Final = "queue"
KUEUE: Final = "kueue"


def check_queue(session: Session) -> Iterator[Check]:
    """One check, of the queue that the templates name."""
    if session.stack.scheduler != KUEUE:
        yield skipped(
            SUBJECT,
            f"{session.stack.scheduler} queues in its own way; docs/schedulers.md tells how",
        )
        return
    low, high = session.template(LOW), session.template(HIGH)
    if low is None or high is None:
        name = LOW if low is None else HIGH
        yield failed(
            SUBJECT,
            f"cronjob/{name} -n {NAMESPACE}: not found",
            "`pulumi up` makes it, where the stack file has `validation`",
        )
        return
    try:
        yield _run_pair(session.jobs, low, high)
    except CREATE_ERRORS as error:
        yield failed(SUBJECT, *describe_create_error(error))


def _run_pair(jobs: Jobs, low: Json, high: Json) -> Check:
    """Raises one of REFUSED where a Job is not made."""
    pair = _PreemptionTest(jobs=jobs, low=jobs.start(low))
    try:
        return pair.check(high)
    finally:
        jobs.delete(pair.low)


@dataclass(frozen=True, kw_only=True)
class _PreemptionTest:
    """A Job that runs, and the one that takes its place."""

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
            return self._stuck(high, f"did not get the place of {self.low.name}")
        # What the workload remembers: a short Job is over, and the other back, between two looks.
        why = preemption_reason(self.jobs.workload(self.low))
        if not why:
            if self._ended(self.low):
                return self._stuck(self.low, f"was over when {high.name} came")
            return failed(
                SUBJECT,
                f"{high.name} was admitted beside {self.low.name}: nothing was preempted",
                "the quota of the validation's queue must hold one of them at a time:"
                " kubectl describe clusterqueues",
            )
        if not self._await(self._ended, high):
            return self._stuck(high, "was admitted and did not end")
        if self._ended(high) != "Complete":
            return self._stuck(high, "was admitted and failed")
        if not self._await(self._runs, self.low):
            return self._stuck(self.low, "did not come back after it was preempted")
        return passed(
            SUBJECT,
            f"{self.low.name} was admitted, preempted for {high.name} ({why}), and admitted again",
        )

    def _await(self, holds: Callable[[StartedJob], object], job: StartedJob) -> bool:
        """Whether it does so within the time that the climb waits."""
        return self.jobs.poller.wait_for(lambda: True if holds(job) else None) is True

    def _runs(self, job: StartedJob) -> bool:
        """Whether it holds quota."""
        found = self.jobs.read(job)
        return (
            found is not None and not found["spec"].get("suspend") and not terminal_condition(found)
        )

    def _began(self, job: StartedJob) -> bool:
        """Whether it holds quota, or held it until it ended."""
        return self._runs(job) or bool(self._ended(job))

    def _ended(self, job: StartedJob) -> str:
        found = self.jobs.read(job)
        return terminal_condition(found) if found else ""

    def _stuck(self, job: StartedJob, what: str) -> Check:
        found = self.jobs.read(job)
        if not found:
            return failed(SUBJECT, f"{job.name} {what}: somebody deleted it", "try again")
        cause, remedy = job_diagnosis.diagnose(
            found, self.jobs.pods(job), (), self.jobs.workload(job), self.jobs.poller.limit_s
        )
        return failed(SUBJECT, f"{job.name} {what}: {cause}", remedy)
