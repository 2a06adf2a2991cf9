"""Submit and stop the runs of a sweep until all have ended.

One round: read the runs' objects and logs, stop runs that are worse than their peers, submit further ones, write
the state. Everything that a round decides on is in the cluster, so the process may end at any time and another
one continues; meanwhile submitted runs go on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import functools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from infra.domain import naming
from ops import concurrent, objects
from ops.cluster import Cluster, ClusterError, ConflictError, Kind
from ops.collect import CONFIG_MAPS, JOBS, PODS, RUN_KINDS, WORKLOADS
from ops.objects import Json
from ops.runs import following, log_progress
from ops.runs import states as run_states
from ops.runs.listing import RunSummary, summarize
from ops.submission.create import kind_of
from ops.sweep import report, space, store
from ops.sweep import state as states
from ops.sweep.space import Asha
from ops.sweep.state import SweepState, Trial
from ops.sweep.store import StoredSweep
from trainyard.contract import METRIC_LINE

POLL_S: Final = 5.0
STOPPED_BY_USER: Final = "stopped by `trainyard sweep stop`"

Print = Callable[[str], None]
ValuesByRun = Mapping[str, Mapping[int, float]]
"""The sweep's metric by run id and step."""
ReadValues = Callable[[Sequence[Trial], Sequence[Json]], ValuesByRun]
"""From runs and all pods of the sweep to the metric by step, by run id."""


@dataclass(frozen=True, kw_only=True)
class Driver:
    """Everything that a round needs."""

    cluster: Cluster
    namespace: str
    manifests: Callable[[str], Sequence[Json]]
    """Objects of a run by its id, in the order of creation; the last one is the run itself."""
    read_values: ReadValues
    asha: Asha | None
    report: Print
    poll_s: float = POLL_S


def runs_of(cluster: Cluster, namespace: str, sweep: str) -> dict[str, Json]:
    selector = f"{naming.SWEEP}={sweep}"
    return {
        objects.label(item, naming.RUN_ID): item
        for kind in RUN_KINDS
        for item in cluster.items(kind, namespace, selector)
        if not objects.owner(item) and objects.label(item, naming.RUN_ID)
    }


def drive(driver: Driver, stored: StoredSweep) -> SweepState:
    """Run rounds until the sweep has ended; return its state. Raises ClusterError."""
    line = ""
    while True:
        stored = following.read_again(functools.partial(run_round, driver, stored), driver.report)
        if (now := report.progress_line(stored.state)) != line:
            driver.report(now)
            line = now
        if stored.state.ended:
            return stored.state
        time.sleep(driver.poll_s)


def run_round(driver: Driver, stored: StoredSweep) -> StoredSweep:
    """Observe, stop, submit, and write the state if it changed."""
    now = dt.datetime.now(dt.UTC)
    state, values = observed(driver, stored.state, now)
    state, stopped = judged(state, values, driver.asha, now)
    for trial in stopped:
        driver.report(f"{trial.run_id}: stopped: {trial.reason}")
    # Written before anything is deleted: a deleted object that is not recorded as stopped would be a mystery.
    stored = _save(driver, stored, state)
    for trial in stopped:
        delete_run(driver.cluster, driver.namespace, stored.state, trial.run_id)
    return _save(driver, stored, submitted(driver, stored.state))


def _save(driver: Driver, stored: StoredSweep, state: SweepState) -> StoredSweep:
    # Compared as text: a NaN is not equal to itself.
    if state.to_json() == stored.state.to_json():
        return stored
    return store.save(driver.cluster, stored, state)


def observed(driver: Driver, state: SweepState, now: dt.datetime) -> tuple[SweepState, ValuesByRun]:
    """Return the state with what the cluster knows of the runs that had not ended, and their values."""
    runs = runs_of(driver.cluster, driver.namespace, state.sweep)
    open_trials = [one for one in state.trials if one.state not in states.ENDED]
    touched = [one for one in open_trials if one.run_id in runs or one.state != states.WAITING]
    if not touched:
        return state, {}
    workloads = driver.cluster.items(WORKLOADS, driver.namespace)
    pods = driver.cluster.items(PODS, driver.namespace, f"{naming.SWEEP}={state.sweep}")
    values = driver.read_values(touched, pods)
    found = {one.run_id: one for one in summarize(list(runs.values()), workloads, pods, {})}
    after = state.updated(
        seen(one, found.get(one.run_id), now, state.max_hours).with_values(
            values.get(one.run_id, {})
        )
        for one in touched
    )
    return after, values


def seen(trial: Trial, run: RunSummary | None, now: dt.datetime, max_hours: float | None) -> Trial:
    """Return a trial's state, times and cost by its run; None: it has no object. Pure."""
    if run is None:
        gone = trial.over(states.DELETED, "its object was deleted", now, max_hours)
        return trial if trial.state == states.WAITING else gone
    # Without a queue it has held its nodes since it was created.
    admitted = trial.admitted or run.admitted or ("" if run.queue else run.created)
    trial = dataclasses.replace(trial, admitted=admitted or None)
    if run.over:
        reason = "" if run.state == run_states.FINISHED else run.message
        return trial.over(_ENDS[run.state], reason, objects.time(run.ended) or now, max_hours)
    state = states.QUEUED if run.state == run_states.QUEUED else states.RUNNING
    return dataclasses.replace(trial, state=state).until(now, max_hours)


_ENDS: Final = {
    run_states.FINISHED: states.DONE,
    run_states.FAILED: states.FAILED,
    run_states.STOPPED: states.STOPPED,
}


def judged(
    state: SweepState, values: ValuesByRun, rules: Asha | None, now: dt.datetime
) -> tuple[SweepState, list[Trial]]:
    """Return the state with the rungs that runs have reached, and the runs that end there."""
    if rules is None:
        return state, []
    stopped: list[Trial] = []
    for known in state.trials:
        trial = _judge(known, values.get(known.run_id, {}), state, rules, now)
        state = state.updated([trial])
        if trial.state == states.STOPPED and known.state != states.STOPPED:
            stopped.append(trial)
    return state, stopped


def _judge(
    trial: Trial, values: Mapping[int, float], state: SweepState, rules: Asha, now: dt.datetime
) -> Trial:
    """Compare a run at each rung that it has reached since the last time. Ended runs are peers, too."""
    for rung in rules.rungs():
        if rung in trial.rungs:
            continue
        value = space.value_at(values, rung)
        if value is None:
            return trial
        peers = [
            one.rungs[rung]
            for one in state.trials
            if rung in one.rungs and one.run_id != trial.run_id
        ]
        trial = dataclasses.replace(trial, rungs={**trial.rungs, rung: value})
        goes_on = space.goes_on(value, peers, rules.reduction, maximize=state.maximize)
        if trial.state in states.ACTIVE and not goes_on:
            why = (
                f"{state.metric} {value:.4g} at step {rung} is not among the best "
                f"1/{rules.reduction} of {len(peers) + 1}"
            )
            return trial.over(states.STOPPED, why, now, state.max_hours)
    return trial


def submitted(driver: Driver, state: SweepState) -> SweepState:
    """Create further runs, as many as may be active and as the budget allows."""
    for trial in state.trials:
        if state.closed or len(state.active) >= state.parallel:
            break
        if trial.state != states.WAITING:
            continue
        if not state.next_fits_budget():
            return state if state.active else _over_budget(driver, state)
        *before, run = driver.manifests(trial.run_id)
        if not _is_prepared(driver, before):
            break
        create_run(driver.cluster, [*before, run])
        driver.report(f"{trial.run_id}: submitted: {report.parameters_text(trial)}")
        state = state.updated([dataclasses.replace(trial, state=states.QUEUED)])
    return state


def _is_prepared(driver: Driver, parts: Sequence[Json]) -> bool:
    """Whether the Jobs that the run waits for are complete: before that it would only hold nodes.

    Creates those that are missing. Raises ClusterError if one has failed.
    """
    for manifest in (one for one in parts if one["kind"] == JOBS.kind):
        name = objects.name(manifest)
        job = driver.cluster.get(JOBS, name, driver.namespace)
        if job is None:
            create_run(driver.cluster, [manifest])
            driver.report(f"job/{name}: created; runs are submitted when it is complete")
        elif objects.condition_is_true(job, "Failed"):
            raise ClusterError(
                f"job/{name} -n {driver.namespace}: failed to prepare the dataset:"
                f" {objects.condition(job, 'Failed').get('message', '')}; read its log, correct `dataset`,"
                " delete the Job, and run the command again"
            )
        if not objects.condition_is_true(job, "Complete"):
            return False
    return True


def _over_budget(driver: Driver, state: SweepState) -> SweepState:
    left = [one for one in state.trials if one.state == states.WAITING]
    driver.report(
        f"{len(left)} runs are not submitted: another one could exceed {state.cost_cap_usd:g} USD"
    )
    reason = "another run could exceed costCapUsd"
    return state.updated(
        dataclasses.replace(one, state=states.OVER_BUDGET, reason=reason) for one in left
    )


def create_run(cluster: Cluster, manifests: Sequence[Json]) -> None:
    """Create the objects of a run; those that exist stay. Raises ClusterError."""
    for manifest in manifests:
        with contextlib.suppress(ConflictError):
            cluster.create(kind_of(manifest), manifest)


def delete_run(cluster: Cluster, namespace: str, state: SweepState, run_id: str) -> None:
    """Delete a run's own object: its pods save and end. Checkpoints and the ConfigMap stay."""
    runs = runs_of(cluster, namespace, state.sweep)
    if run := runs.get(run_id):
        cluster.delete(kind_of(run), objects.name(run), namespace)


def stop(cluster: Cluster, stored: StoredSweep, now: dt.datetime) -> StoredSweep:
    """Close a sweep: nothing more is submitted, and what is active ends."""
    active = stored.state.active
    state = dataclasses.replace(stored.state, closed=True).updated(
        one.over(states.STOPPED, STOPPED_BY_USER, now, stored.state.max_hours) for one in active
    )
    stored = store.save(cluster, stored, state)
    for one in active:
        delete_run(cluster, stored.namespace, state, one.run_id)
    return stored


def delete(cluster: Cluster, stored: StoredSweep) -> int:
    """Delete every object of a sweep, its state last; return the number of runs. Checkpoints stay."""
    sweep, namespace = stored.state.sweep, stored.namespace
    runs = runs_of(cluster, namespace, sweep)
    for run in runs.values():
        cluster.delete(kind_of(run), objects.name(run), namespace)
    for kind in (Kind("v1", "services", "Service"), CONFIG_MAPS):
        for item in cluster.items(kind, namespace, f"{naming.SWEEP}={sweep},{naming.RUN_ID}"):
            cluster.delete(kind, objects.name(item), namespace)
    cluster.delete(CONFIG_MAPS, store.object_name(sweep), namespace)
    return len(runs)


LOG_LINES: Final = 3000
LOG_BYTES: Final = 1024 * 1024
DEADLINE_S: Final = 20.0
"""Of all logs of one round together, in seconds."""


def parse_values(text: str, metric: str) -> dict[int, float]:
    """Return a metric by step from the metric lines of a log; other lines and malformed ones are skipped."""
    found: dict[int, float] = {}
    for line in text.splitlines():
        _, marker, rest = line.partition(METRIC_LINE)
        if not marker:
            continue
        try:
            values = json.loads(rest)
            step, value = values["step"], values[metric]
        except (ValueError, TypeError, KeyError):
            continue
        if isinstance(step, int) and isinstance(value, int | float) and step >= 0:
            found[step] = float(value)
    return found


def log_reader(cluster: Cluster, namespace: str, metric: str) -> ReadValues:
    """Return a reader of metric lines in the logs of first pods. Logs that cannot be read are left out."""

    def read(trials: Sequence[Trial], pods: Sequence[Json]) -> dict[str, dict[int, float]]:
        wanted = {one.run_id for one in trials}
        first = log_progress.leading_pods(pods)
        query = [("tailLines", str(LOG_LINES)), ("limitBytes", str(LOG_BYTES))]

        def request(pod: str) -> Callable[[], str]:
            path = f"{PODS.path(namespace, pod)}/log"
            return lambda: cluster.text(path, query, DEADLINE_S) or ""

        came = concurrent.gather_with_deadline(
            {run: request(objects.name(pod)) for run, pod in first.items() if run in wanted},
            DEADLINE_S,
        )
        return {
            run_id: parse_values(text, metric)
            for run_id, text in came.items()
            if not isinstance(text, ClusterError)
        }

    return read
