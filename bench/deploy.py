"""P8: `pulumi up` with one run more, among few and among many, on the file and on the S3 backend.

The real engine deploys the real program to a sandbox cluster, whose S3 is moto. Runs are Jobs for a pool of KWOK
nodes that is too small for most of them, so they wait. Measured are the first `up` of each number of runs, `up`
with one run more, the requests to the API server and the bytes of state, and the CPU time of the program in a
preview, against a bare program that registers the same resources from a file.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import boto3
import yaml

from bench import deployer
from bench.api import Api
from bench.embedded import ROOT, Embedded
from bench.request import Notify, Request, Result
from infra.config import stack_values

SIZES: dict[str, dict[str, Any]] = {
    "small": {"file": (1, 5, 15), "S3": (1, 5, 15)},
    "full": {"file": (1, 10, 100, 1000), "S3": (1, 10, 100)},
}
"""Numbers of runs by backend."""
_CHECKPOINTS_UP_TO: Final = 100
"""Runs. The engine writes the whole state before and after each step of an update: with 1,000 new runs some 10,000
times up to 100 MB. Where more are new at once, it writes the state at the end only (`_SKIP_CHECKPOINTS`)."""
_SKIP_CHECKPOINTS: Final = {"PULUMI_EXPERIMENTAL": "true", "PULUMI_SKIP_CHECKPOINTS": "true"}
SAME_GOAL: Final = 1.2
GROWTH_GOAL: Final = 1.05
CPU_GOAL: Final = 1.2
BACKENDS: Final = ("file", "S3")
_UP_S: Final = 7200.0
_BUCKET: Final = "bench-state"
_POOL: Final = "fleet-ondemand"
_TEAM: Final = "research"
_IMAGE: Final = "registry.test/trainer@sha256:" + "1" * 64
_CPU: Final = "BENCH_CPU_FILE"
_TIMED: Final = f"""
import atexit as _atexit, os as _os, resource as _resource

def _spent():
    used = _resource.getrusage(_resource.RUSAGE_SELF)
    with open(_os.environ["{_CPU}"], "w") as file:
        file.write(str(used.ru_utime + used.ru_stime))

_atexit.register(_spent)
"""
"""Start of a program: at its end it writes its CPU seconds."""
_BARE: Final = f"""{_TIMED}
import json, pathlib
import pulumi

made = {{}}
for one in json.loads(pathlib.Path("resources.json").read_text()):
    opts = pulumi.ResourceOptions(parent=made.get(one["parent"]))
    if one["custom"]:
        new = pulumi.CustomResource(one["type"], one["name"], one["inputs"], opts)
    else:
        new = pulumi.ComponentResource(one["type"], one["name"], None, opts)
    made[one["urn"]] = new
"""


@dataclass(frozen=True, kw_only=True)
class Deployed:
    """What deploying some runs, and then one more, took."""

    backend: str
    runs: int
    first_s: float
    more_s: float
    more_requests: float
    """Of the deployment to the API server, during the second `up`."""
    state_bytes: int
    """Of the object with the state, after the second `up`."""
    cpu_s: float
    """Of the program in a preview of the same."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """All measurements."""

    deployed: Sequence[Deployed]
    bare_cpu_s: float
    """Of the bare program, with the most runs."""
    load: tuple[float, float]
    """Load average of the last minute before and after, of all processes of the machine."""

    def of(self, backend: str) -> list[Deployed]:
        """Return those of a backend, fewest runs first."""
        return sorted((d for d in self.deployed if d.backend == backend), key=lambda d: d.runs)

    def growth(self, backend: str) -> float:
        """Return the exponent of the time of the first `up` by runs, from the second number of runs on.

        Only of those that write the state at each step.
        """
        some = [d for d in self.of(backend)[1:] if d.runs <= _CHECKPOINTS_UP_TO]
        return math.log(some[-1].first_s / some[0].first_s) / math.log(some[-1].runs / some[0].runs)

    @property
    def cpu_ratio(self) -> float:
        """Return the CPU time of the program over the bare one's."""
        return self.of("file")[-1].cpu_s / self.bare_cpu_s


def run(request: Request) -> Result:
    """Measure on a cluster of its own, with the sandbox's S3."""
    with request.cluster(tuned=False) as cluster:
        outcome = measure(cluster, request.sizes, request.notify)
    return Result(text=section(outcome), versions="cluster")


def measure(cluster: Embedded, sizes: Mapping[str, Any], notify: Notify) -> Outcome:
    """Measure on a cluster that nothing else uses."""
    load = os.getloadavg()[0]
    found: list[Deployed] = []
    bare = 0.0
    account = deployer.create(cluster)
    total = sum(len(sizes[backend]) for backend in BACKENDS)
    for backend in BACKENDS:
        for number in sizes[backend]:
            notify(f"{backend}: {number} runs", total, len(found))
            with tempfile.TemporaryDirectory() as folder:
                name = f"{backend.lower()}{number}"
                project = _Project(Path(folder), cluster, account, backend, name)
                try:
                    found.append(project.measured(number))
                    if backend == "file" and number == max(sizes[backend]):
                        bare = project.bare_cpu()
                finally:
                    project.destroy()
    return Outcome(deployed=found, bare_cpu_s=bare, load=(load, os.getloadavg()[0]))


class _Project:
    """The project in a folder of its own, with a backend of its own."""

    def __init__(
        self, folder: Path, cluster: Embedded, kubeconfig: str, backend: str, stack: str
    ) -> None:
        self._folder, self._stack = folder / "project", stack
        self._api = Api(cluster.kubeconfig)
        self._folder.mkdir()
        self._all_at_once: Mapping[str, str] = {}
        """Environment of commands that create or delete all runs."""
        self._cpu = folder / "cpu"
        self._state = folder / "state"
        self._state.mkdir()
        for one in ROOT.iterdir():
            if not one.name.startswith(("Pulumi.", "__main__", ".git")):
                (self._folder / one.name).symlink_to(one)
        (self._folder / "Pulumi.yaml").write_text((ROOT / "Pulumi.yaml").read_text())
        program = (ROOT / "__main__.py").read_text()
        timed = program.replace("import pulumi\n", f"import pulumi\n{_TIMED}", 1)
        (self._folder / "__main__.py").write_text(timed)
        own = {_CPU: str(self._cpu), "KUBECONFIG": kubeconfig}
        self._env = os.environ | cluster.variables() | own
        self._env["PULUMI_BACKEND_URL"] = self._backend(backend)
        self._pulumi("stack", "init", stack, "--no-select")

    def _backend(self, backend: str) -> str:
        if backend == "file":
            return f"file://{self._state}"
        endpoint = self._env["AWS_ENDPOINT_URL"]
        self._s3().create_bucket(Bucket=_BUCKET)
        host = endpoint.removeprefix("http://")
        return (
            f"s3://{_BUCKET}?region=us-east-1&endpoint={host}&disableSSL=true&s3ForcePathStyle=true"
        )

    def write(self, runs: int) -> None:
        """Make these the stack's runs."""
        values = stack_values(ROOT / "Pulumi.local.yaml")
        values["nodePools"] = [p for p in values["nodePools"] if p["name"] == _POOL]
        values["teams"] = [
            {
                "name": _TEAM,
                "tier": "research",
                "guaranteed": {_POOL: 1},
                "quota": {"cpu": "512", "memory": "4Ti", "gpus": 32, "objects": 5000},
            }
        ]
        values["images"] = {"trainer": _IMAGE}
        values["runs"] = ["bench-runs.yaml"]
        values["operators"] = {name: {"provided": True} for name in values["operators"]}
        for name in ("validation", "charts", "gangTimeouts"):
            values.pop(name, None)
        config = {f"trainyard:{key}": value for key, value in values.items()}
        file = self._folder / f"Pulumi.{self._stack}.yaml"
        kept = yaml.safe_load(file.read_text()) if file.exists() else {}
        file.write_text(yaml.safe_dump({**(kept or {}), "config": config}))
        documents = [_run(number) for number in range(1, runs + 1)]
        (self._folder / "bench-runs.yaml").write_text(yaml.safe_dump_all(documents))

    def measured(self, runs: int) -> Deployed:
        """Deploy the runs, then one more."""
        self.write(runs)
        self._all_at_once = {} if runs <= _CHECKPOINTS_UP_TO else _SKIP_CHECKPOINTS
        first = self._up(self._all_at_once)
        self.write(runs + 1)
        before = deployer.requests(self._api)
        more = self._up()
        requests = deployer.requests(self._api) - before
        self._pulumi("preview", "--stack", self._stack)
        return Deployed(
            backend=self._env["PULUMI_BACKEND_URL"].partition(":")[0].replace("s3", "S3"),
            runs=runs,
            first_s=first,
            more_s=more,
            more_requests=requests,
            state_bytes=self._state_bytes(),
            cpu_s=float(self._cpu.read_text()),
        )

    def _state_bytes(self) -> int:
        key = f".pulumi/stacks/trainyard/{self._stack}.json"
        if (self._state / key).exists():
            return (self._state / key).stat().st_size
        size: int = self._s3().head_object(Bucket=_BUCKET, Key=key)["ContentLength"]
        return size

    def _s3(self) -> Any:
        """Return a client of the sandbox's S3: boto3 creates it dynamically, without types."""
        return boto3.client(
            "s3",
            endpoint_url=self._env["AWS_ENDPOINT_URL"],
            region_name=self._env["AWS_REGION"],
            aws_access_key_id=self._env["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=self._env["AWS_SECRET_ACCESS_KEY"],
        )

    def bare_cpu(self) -> float:
        """Return the CPU time of a program that registers the same resources, in a preview."""
        state = json.loads(self._pulumi("stack", "export", "--stack", self._stack))
        kept = [
            {
                "urn": one["urn"],
                "type": one["type"],
                "name": one["urn"].rpartition("::")[2],
                "parent": one.get("parent", ""),
                "custom": one["custom"],
                "inputs": {
                    k: v for k, v in one.get("inputs", {}).items() if not k.startswith("__")
                },
            }
            for one in state["deployment"]["resources"]
            if not one["type"].startswith(("pulumi:pulumi:", "pulumi:providers:"))
        ]
        (self._folder / "resources.json").write_text(json.dumps(kept))
        main = self._folder / "__main__.py"
        program = main.read_text()
        main.write_text(_BARE)
        try:
            self._pulumi("stack", "init", "bare", "--no-select")
            # The project requires some values of every stack.
            own, bare = (self._folder / f"Pulumi.{stack}.yaml" for stack in (self._stack, "bare"))
            kept = yaml.safe_load(bare.read_text()) if bare.exists() else {}
            config = yaml.safe_load(own.read_text())["config"]
            bare.write_text(yaml.safe_dump({**(kept or {}), "config": config}))
            self._pulumi("preview", "--stack", "bare")
        finally:
            main.write_text(program)
        return float(self._cpu.read_text())

    def destroy(self) -> None:
        """Delete all that was deployed."""
        words = ("destroy", "--yes", "--skip-preview", "--stack", self._stack)
        self._pulumi(*words, more=self._all_at_once)

    def _up(self, more: Mapping[str, str] | None = None) -> float:
        begun = time.monotonic()
        words = ("up", "--yes", "--skip-preview", "--suppress-outputs", "--stack", self._stack)
        self._pulumi(*words, more=more)
        return time.monotonic() - begun

    def _pulumi(self, *words: str, more: Mapping[str, str] | None = None) -> str:
        done = subprocess.run(
            ["pulumi", "--non-interactive", *words],
            cwd=self._folder,
            env={**self._env, **(more or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_UP_S,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"pulumi {words[0]}: {done.stdout[-3000:]}{done.stderr[-3000:]}")
        return done.stdout


def _run(version: int) -> dict[str, Any]:
    """Return a run of one GPU; its version makes it another run."""
    return {
        "name": "many",
        "version": version,
        "team": _TEAM,
        "jobKind": "job",
        "nodes": 1,
        "gpusPerNode": 8,
        "image": "trainer",
        "config": "hello",
        "overrides": {"batch": {"micro_samples": 4}},
        "dataset": {"name": "stdlib"},
        "resources": {"cpu": "2", "memory": "8Gi", "shm": "1Gi"},
        "maxHours": 1,
    }


def section(outcome: Outcome) -> str:
    """Return the Markdown: measurements per backend and number of runs, then the goals."""
    lines = [
        "P8: `pulumi up` of the local stack with one KWOK pool, one team and n runs; then with one run"
        " more. Requests are those of the deployment alone."
        f" Load average {outcome.load[0]:.1f} before, {outcome.load[1]:.1f} after.",
        "",
        "| backend | runs | first `up`, s | one more, s | requests of one more | state, KiB"
        " | CPU of the program, s |",
        "|---|---|---|---|---|---|---|",
    ]
    for backend in BACKENDS:
        lines += [
            f"| {d.backend} | {d.runs} | {d.first_s:.1f} | {d.more_s:.1f} | {d.more_requests:,.0f}"
            f" | {d.state_bytes / 1024:,.0f} | {d.cpu_s:.2f} |"
            for d in outcome.of(backend)
        ]
    lines.append("")
    for backend in BACKENDS:
        few, many = outcome.of(backend)[0], outcome.of(backend)[-1]
        ratio = many.more_s / few.more_s
        growth = outcome.growth(backend)
        lines.append(
            f"- {backend}: one run among {many.runs} takes {ratio:.2f} times as long as among {few.runs}"
            f" ({_verdict(ratio, SAME_GOAL)}) and {_requests(many, few)}; a run takes"
            f" {_per_run(few, many):.1f} KiB of state; the first `up` grows with exponent {growth:.2f}"
            f" ({_verdict(growth, GROWTH_GOAL)})"
        )
        if many.runs > _CHECKPOINTS_UP_TO:
            lines.append(
                f"- {backend}: the first `up` of {many.runs} runs wrote the state at its end only"
                " (PULUMI_SKIP_CHECKPOINTS); the exponent is that of fewer runs"
            )
    lines.append(
        f"- CPU of the program over a bare one's: {outcome.cpu_ratio:.2f}"
        f" ({_verdict(outcome.cpu_ratio, CPU_GOAL)})"
    )
    lines += [
        "",
        "`up` registers and compares every resource of the stack, so its time grows with the stack. `trainyard run"
        " submit` needs no stack: its requests do not depend on the number of runs (section submit).",
    ]
    return "\n".join(lines) + "\n"


def _requests(many: Deployed, few: Deployed) -> str:
    ratio = many.more_requests / few.more_requests
    return f"{ratio:.2f} times the requests ({_verdict(ratio, SAME_GOAL)})"


def _per_run(few: Deployed, many: Deployed) -> float:
    """Return the KiB of state that each run adds."""
    return (many.state_bytes - few.state_bytes) / 1024 / (many.runs - few.runs)


def _verdict(value: float, goal: float) -> str:
    return f"goal {goal:g}: {'met' if value <= goal else 'not met'}"
