"""A sandbox cluster for benchmarks, in its own folder.

The sandbox's defaults are for a laptop. `Embedded.tune` raises what would bound every measurement at the
clients' own limits (20 requests per second of kube-controller-manager, for one), and leaves out what a
benchmark does not use. It edits the sandbox's list of services, which the sandbox's supervisor reads again
on SIGHUP.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import urllib3
import yaml

from bench.api import Json, wait_until

ROOT: Final = Path(__file__).resolve().parents[1]
START_S: Final = 1800.0
"""The first time the toolchain is built."""
READY_S: Final = 60.0

RUN_DURATION: Final = "trainyard.dev/bench-runs-for"
"""Annotation of a pod: how long it runs, as a Go duration."""

MEASURED_SERVICES: Final = (
    "etcd",
    "apiserver",
    "controller-manager",
    "scheduler",
    "kueue",
    "jobset",
    "kwok",
)
"""Services whose CPU time counts; the benchmark's own process does not."""
UNUSED_SERVICES: Final = ("node", "s3")
POD_SERVICES: Final = ("controller-manager", "scheduler", "kwok", "jobset")
"""Services that are not required without pods; nodes keep their state without them."""
CLIENT_LIMITS: Final = ("--kube-api-qps=1000", "--kube-api-burst=2000")
EXTRA_ARGUMENTS: Final = {
    "controller-manager": (*CLIENT_LIMITS, "--concurrent-job-syncs=20", "--concurrent-gc-syncs=20"),
    "scheduler": CLIENT_LIMITS,
}
"""Kueue and JobSet have raised limits in the sandbox already."""


@dataclass(frozen=True)
class Embedded:
    """A running sandbox in `home`."""

    home: Path

    @property
    def kubeconfig(self) -> str:
        return str(self.home / "kubeconfig")

    def tune(self) -> None:
        """Raise the clients' limits, and let pods run as long as they say."""
        services = [s for s in self._services() if s["name"] not in UNUSED_SERVICES]
        for service in services:
            service["argv"] += EXTRA_ARGUMENTS.get(service["name"], ())
            if service["name"] == "kwok":
                service["argv"] = [self._timed(argument) for argument in service["argv"]]
        self._write(services)
        self._end(UNUSED_SERVICES)

    def without_pods(self) -> None:
        """Stop everything but etcd, the API server and Kueue."""
        self._write([s for s in self._services() if s["name"] not in POD_SERVICES])
        self._end(POD_SERVICES)

    def kueue_configuration(self) -> Json:
        """The Kueue configuration that the sandbox has made."""
        text = (self.home / "config" / "kueue.yaml").read_text()
        configuration: Json = yaml.safe_load(text)
        return configuration

    def restart_kueue(self, configuration: Json) -> None:
        """Restart Kueue with this configuration and wait until it is ready."""
        file = self.home / "config" / "kueue-bench.yaml"
        file.write_text(yaml.safe_dump(configuration))
        services = self._services()
        kueue = next(s for s in services if s["name"] == "kueue")
        kueue["argv"] = [
            f"--config={file}" if a.startswith("--config=") else a for a in kueue["argv"]
        ]
        # The command is the same for another configuration; this makes it another service.
        kueue["env"]["BENCH_START"] = str(int(kueue["env"].get("BENCH_START", "0")) + 1)
        before = self.pid("kueue")
        self._write(services)
        wait_until(lambda: self.pid("kueue") != before, "Kueue starts again", READY_S)
        wait_until(lambda: self.answers("kueue"), "Kueue is ready", READY_S)

    def kill(self, service: str) -> bool:
        """SIGKILL to a service and all it has started; the supervisor starts it again.

        False when it is dead already.
        """
        return self._signal(service, signal.SIGKILL)

    def answers(self, service: str) -> bool:
        """Whether a service says that it is ready."""
        found = next(s for s in self._services() if s["name"] == service)
        return _is_ready(found["probe"]["url"])

    def cpu_seconds(self) -> float:
        """CPU time that the services of the control plane have used since they were started."""
        groups = {pid for name in MEASURED_SERVICES if (pid := self.pid(name)) is not None}
        ticks = sum(_cpu_ticks(process, groups) for process in Path("/proc").glob("[0-9]*"))
        return ticks / os.sysconf("SC_CLK_TCK")

    def pid(self, service: str) -> int | None:
        """The process of a service, or the last one it had."""
        try:
            return int(json.loads((self.home / "pids" / f"{service}.json").read_text())["pid"])
        except (OSError, ValueError):
            return None

    def _end(self, services: Iterable[str]) -> None:
        for name in services:
            self._signal(name, signal.SIGTERM)

    def _signal(self, service: str, number: signal.Signals) -> bool:
        pid = self.pid(service)
        try:
            if pid is not None:
                os.killpg(pid, number)
        except ProcessLookupError:
            return False
        return pid is not None

    def _services(self) -> list[dict[str, Any]]:
        services: list[dict[str, Any]] = json.loads((self.home / "services.json").read_text())
        return services

    def _write(self, services: list[dict[str, Any]]) -> None:
        partial = self.home / "services.partial"
        partial.write_text(json.dumps(services))
        partial.rename(self.home / "services.json")
        supervisor = self.pid("supervisor")
        if supervisor is not None:
            os.kill(supervisor, signal.SIGHUP)

    def _timed(self, argument: str) -> str:
        """KWOK's stage that ends pods at once, made to wait as long as the pod's annotation says."""
        if not argument.endswith("/pod-complete.yaml"):
            return argument
        stage = yaml.safe_load(Path(argument.removeprefix("--config=")).read_text())
        expression = f'.metadata.annotations["{RUN_DURATION}"]'
        stage["spec"]["delay"] = {
            "durationMilliseconds": 0,
            "durationFrom": {"expressionFrom": expression},
        }
        file = self.home / "config" / "pod-complete.yaml"
        file.write_text(yaml.safe_dump(stage))
        return f"--config={file}"


def _cpu_ticks(process: Path, groups: set[int]) -> int:
    """Clock ticks of a process if it is in one of the process groups, else 0; see proc(5)."""
    try:
        fields = (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    group, user, system = int(fields[2]), int(fields[11]), int(fields[12])
    return user + system if group in groups else 0


def _is_ready(url: str) -> bool:
    try:
        return urllib3.request("GET", url, timeout=2.0, retries=False).status == 200
    except urllib3.exceptions.HTTPError:
        return False


@contextlib.contextmanager
def running_cluster(say: Callable[[str], None]) -> Iterator[Embedded]:
    """Yield a tuned cluster; delete it with all its data at exit, also after an exception."""
    home = Path(tempfile.mkdtemp(prefix="trainyard-bench-"))
    # Measure the control plane without monitoring.
    env = os.environ | {"SANDBOX_HOME": str(home), "SANDBOX_MONITORING": "off"}

    def sandbox(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "sandbox", *command],
            cwd=ROOT,
            env=env,
            text=True,
            capture_output=True,
            timeout=START_S,
            check=False,
        )

    try:
        say("starting a cluster; the first start builds its tools, which takes long")
        done = sandbox("up", "--cluster-only")
        if done.returncode:
            raise RuntimeError(f"python -m sandbox up: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        cluster = Embedded(home)
        cluster.tune()
        yield cluster
    finally:
        say("deleting the cluster")
        with _signals_ignored():
            sandbox("clean")
            shutil.rmtree(home, ignore_errors=True)


@contextlib.contextmanager
def _signals_ignored() -> Iterator[None]:
    """Ignore further interrupts, also in children, so that a second Ctrl-C does not leave the cluster behind."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
