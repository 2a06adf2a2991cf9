"""P13: time from `trainyard run submit` to the admission of the run, and of the run page, among many runs.

The submission is compared with `kubectl apply` of the manifests that the command would create. Both are whole
processes, from their start to the moment at which the API server shows the run as admitted.
"""

from __future__ import annotations

import copy
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final

import yaml

from bench import fleet, page, rounds
from bench.api import Api, Json, run_parallel, wait_until
from bench.embedded import ROOT, RUN_DURATION, Embedded
from bench.request import Notify, Request, Result
from bench.statistics import p95
from infra.domain import naming
from infra.domain.published_record import from_text, to_text
from infra.tenancy import team
from ops.cluster import Cluster
from ops.submission import create, queue_place, record, render

SIZES: dict[str, dict[str, Any]] = {
    "small": {"nodes": 16, "runs": 40, "samples": 4, "pages": 60},
    "full": {"nodes": 200, "runs": 1000, "samples": 20, "pages": 400},
}
GOAL_S: Final = 2.0
TEAM: Final = fleet.TEAMS[0][0]
NAMESPACE: Final = naming.namespace(TEAM)
_ADMITTED_S: Final = 120.0
_SETTLE_S: Final = 1800.0
_POLL_S: Final = 0.02
_COMMAND_S: Final = 180.0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Seconds from the start of a process to the admission of its run, by what submitted it."""

    sizes: Mapping[str, int]
    load: tuple[float, float]
    """Load average of the last minute before and after, of all processes of the machine."""
    submit: Sequence[float] = ()
    apply: Sequence[float] = ()
    inside: Sequence[float] = ()
    """Of the requests alone: from the first one to the admission, in a process that runs already."""
    requests: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """Requests of each submission, by the number of runs that were there."""
    pages: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Milliseconds of each page of the run page, by kind."""

    @property
    def good(self) -> bool:
        """Whether both goals are met and the number of requests does not depend on other runs."""
        counts = {count for found in self.requests.values() for count in found}
        soon = statistics.median(self.submit) < GOAL_S and page.p95(self.pages) <= page.GOAL_MS
        return soon and len(counts) == 1


class Counting(Cluster):
    """A client that counts its requests."""

    def __init__(self, kubeconfig: Path) -> None:
        super().__init__(kubeconfig)
        self.requests = 0

    def _send(self, method: str, *arguments: Any, **more: Any) -> Any:
        self.requests += 1
        return super()._send(method, *arguments, **more)


def run(request: Request) -> Result:
    """Measure on a cluster of its own."""
    with request.cluster() as cluster:
        outcome = measure(cluster, request.sizes, request.seed, request.notify)
    return Result(text=section(outcome), good=outcome.good, versions="cluster")


def measure(cluster: Embedded, sizes: Mapping[str, int], seed: int, notify: Notify) -> Outcome:
    """Measure on a cluster that nothing else uses."""
    load = os.getloadavg()[0]
    api = Api(cluster.kubeconfig)
    notify("rendering the fleet", 0, 0)
    made = fleet.render_fleet(sizes["nodes"], network="")
    rounds.install_fleet(api, made, ())
    arm = fleet.trainyard_arm(made, fleet.with_production_settings(cluster.kueue_configuration()))
    rounds.switch_arm(api, cluster, arm, ())
    rounds.release_queues(api, arm)
    text = to_text(made.platform, TEAM, {"trainer": fleet.IMAGE})
    api.apply(team.platform_record(TEAM, text))
    with tempfile.TemporaryDirectory() as folder:
        bench = _Bench(cluster=cluster, api=api, folder=Path(folder), text=text)
        few = [bench.counted(f"few-{number}")[0] for number in range(3)]
        bench.fill(sizes["runs"], notify)
        many = [bench.counted(f"many-{number}") for number in range(sizes["samples"])]
        submit, apply = [], []
        for number in range(sizes["samples"]):
            notify("submitting", sizes["samples"], number)
            submit.append(bench.submitted(f"submit-{number}"))
            apply.append(bench.applied(f"apply-{number}"))
        notify("opening pages", 0, 0)
        runs = [f"{NAMESPACE}/{_present(number)}" for number in range(sizes["runs"])]
        pages = page.open_pages(cluster.kubeconfig, runs, sizes["pages"], random.Random(seed))
    return Outcome(
        sizes=sizes,
        load=(load, os.getloadavg()[0]),
        submit=submit,
        apply=apply,
        inside=[seconds for _, seconds in many],
        requests={0: few, sizes["runs"]: [count for count, _ in many]},
        pages=pages,
    )


@dataclass(frozen=True, kw_only=True)
class _Bench:
    """A team's namespace with its published platform, and what is submitted to it."""

    cluster: Embedded
    api: Api
    folder: Path
    text: str
    """The Platform record."""

    def _file(self, name: str) -> Path:
        """Return a run file of one GPU on one node."""
        values = {
            "name": name,
            "version": 1,
            "team": TEAM,
            "jobKind": "job",
            "nodes": 1,
            "gpusPerNode": 1,
            "image": "trainer",
            "config": "hello",
            "overrides": {"batch": {"micro_samples": 32}},
            "dataset": {"name": "stdlib"},
            "resources": {"cpu": "2", "memory": "8Gi", "shm": "1Gi"},
            "maxHours": 1,
        }
        file = self.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(values))
        return file

    def _render(self, name: str, user: str) -> tuple[str, list[Json], render.RunDocument]:
        document = render.read(self._file(name), [])
        found = render.render(document, from_text(self.text), user)
        return found.run_id, found.manifests, document

    def fill(self, number: int, notify: Notify) -> None:
        """Create runs that go on for ever, and wait until all are admitted."""
        _, [*_, one], _ = self._render("present", "bench")
        template = one["spec"]["template"]
        template["metadata"].setdefault("annotations", {})[RUN_DURATION] = "24h"
        template["spec"]["volumes"] = []
        for container in template["spec"]["containers"]:
            container["volumeMounts"] = []
        runs = [_renamed(one, _present(index)) for index in range(number)]
        notify("creating the runs that are present", number, 0)
        run_parallel(self.api.create, runs, lambda: None)
        wait_until(lambda: self._admitted_runs() >= number, "all are admitted", _SETTLE_S, 2.0)

    def _admitted_runs(self) -> int:
        jobs = self.api.get(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs")["items"]
        return sum(not job["spec"].get("suspend") for job in jobs)

    def counted(self, name: str) -> tuple[int, float]:
        """Submit a run in this process; return the requests but for looks at the queue, and the seconds."""
        client = Counting(Path(self.cluster.kubeconfig))
        begun = monotonic()
        published = record.read_record(client, TEAM)
        user = record.caller(client)
        document = render.read(self._file(name), [])
        found = render.render(document, published, user)
        manifests = create.with_source(found.manifests, document.values)
        made = create.create(client, manifests, user)
        requests = client.requests
        queue_place.queue_line(client, made.run)
        self._await_admission(found.run_id)
        seconds = monotonic() - begun
        self._delete(found.run_id)
        return requests, seconds

    def submitted(self, name: str) -> float:
        """Return the seconds from the start of `trainyard run submit` to the admission."""
        run_id, _, _ = self._render(name, "bench")
        file = self.folder / f"{name}.yaml"
        command = [sys.executable, "-m", "ops", "run", "submit", str(file)]
        return self._timed([*command, "--kubeconfig", self.cluster.kubeconfig], name, run_id)

    def applied(self, name: str) -> float:
        """Return the seconds from the start of `kubectl apply` to the admission."""
        run_id, manifests, _ = self._render(name, "bench")
        file = self.folder / f"{name}-manifests.yaml"
        file.write_text(yaml.safe_dump_all(manifests))
        kubectl = str(self.cluster.home / "bin" / "kubectl")
        command = [kubectl, "--kubeconfig", self.cluster.kubeconfig, "apply", "-f", str(file)]
        return self._timed(command, name, run_id)

    def _timed(self, command: Sequence[str], name: str, run_id: str) -> float:
        output = self.folder / f"{name}.log"
        begun = monotonic()
        with (
            output.open("w") as log,
            subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            ) as process,
        ):
            try:
                self._await_admission(run_id, process)
                seconds = monotonic() - begun
                process.wait(_COMMAND_S)
            finally:
                process.kill()
        if process.returncode:
            raise RuntimeError(f"{name}: {output.read_text()[-2000:]}")
        self._delete(run_id)
        return seconds

    def _await_admission(self, run_id: str, process: subprocess.Popen[bytes] | None = None) -> None:
        """Wait until Kueue has started a run. Raises TimeoutError, RuntimeError if its process fails."""
        limit = monotonic() + _ADMITTED_S
        while not self._is_admitted(run_id):
            if process is not None and process.poll():
                return  # the caller says why
            if monotonic() > limit:
                raise TimeoutError(f"{run_id}: not admitted within {_ADMITTED_S:.0f} s")
            sleep(_POLL_S)

    def _is_admitted(self, run_id: str) -> bool:
        query = {"fieldSelector": f"metadata.name={run_id}"}
        found = self.api.get(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs", **query)["items"]
        return bool(found) and not found[0]["spec"].get("suspend")

    def _delete(self, run_id: str) -> None:
        self.api.delete(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{run_id}")
        self.api.delete(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{run_id}")


def _present(number: int) -> str:
    return f"present-{number:04d}-v1-00000000"


def _renamed(manifest: Json, run_id: str) -> Json:
    found = copy.deepcopy(manifest)
    found["metadata"]["name"] = run_id
    for labels in (
        found["metadata"]["labels"],
        found["spec"]["template"]["metadata"]["labels"],
    ):
        labels |= {key: run_id for key in (naming.RUN_ID, naming.WORKER_OF) if key in labels}
    return found


def section(outcome: Outcome) -> str:
    """Return the section of RESULTS.md, without the machine."""
    sizes = outcome.sizes
    lines = [
        "| submitted by | median s | p95 s | longest s |",
        "|---|---|---|---|",
        _row("`trainyard run submit`, whole process", outcome.submit),
        _row("its requests alone", outcome.inside),
        _row("`kubectl apply` of the rendered manifests", outcome.apply),
    ]
    middle = statistics.median(outcome.submit)
    counts = "; ".join(
        f"{min(found)} to {max(found)} with {runs} runs present"
        for runs, found in sorted(outcome.requests.items())
    )
    return "\n".join(
        [
            f"{sizes['nodes']} nodes, {sizes['runs']} runs of one GPU present, {sizes['samples']} samples"
            f" of each; seconds from the start to the admission. Load average {outcome.load[0]:.1f} before,"
            f" {outcome.load[1]:.1f} after.",
            "",
            *lines,
            "",
            f"Goal of a median below {GOAL_S:g} s: {'met' if middle < GOAL_S else 'not met'}. Requests per"
            f" submission, but for looks at the queue, of which there are at most {queue_place.LOOKS}: {counts}.",
            "",
            f"The run page over the same {sizes['runs']} runs and {sizes['nodes']} nodes:",
            "",
            *page.table(outcome.pages),
        ]
    )


def _row(name: str, seconds: Sequence[float]) -> str:
    middle, slow, longest = statistics.median(seconds), p95(seconds), max(seconds)
    return f"| {name} | {middle:.2f} | {slow:.2f} | {longest:.2f} |"
