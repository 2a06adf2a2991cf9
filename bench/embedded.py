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
import shlex
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

from bench.api import Api, ApiError, Json, wait_until
from infra.domain import naming

ROOT: Final = Path(__file__).resolve().parents[1]
START_S: Final = 1800.0
"""The first time the toolchain is built."""
READY_S: Final = 60.0

RUN_DURATION: Final = "trainyard.dev/bench-runs-for"
"""Annotation of a pod: how long it runs, as a Go duration."""

UNUSED_SERVICES: Final = ("s3",)
POD_SERVICES: Final = ("kwok",)
"""Services that are not required without pods; nodes keep their state without them."""
WITHOUT_PODS: Final = ("--controllers=deployment-controller,replicaset-controller",)
"""Arguments of the controller manager, which then has Kueue's pod only."""
KUEUE: Final = "/apis/apps/v1/namespaces/kueue-system/deployments/kueue-controller-manager"
JOBSET: Final = "/apis/apps/v1/namespaces/jobset-system/deployments/jobset-controller"
KUEUE_FILE: Final = "controller_manager_config.yaml"
KUEUE_CONFIG: Final = "/api/v1/namespaces/kueue-system/configmaps/kueue-manager-config"
CLIENT_LIMITS: Final = ("--kube-api-qps=1000", "--kube-api-burst=2000")
EXTRA_ARGUMENTS: Final = {
    "controller-manager": (
        *CLIENT_LIMITS,
        "--concurrent-job-syncs=20",
        "--concurrent-gc-syncs=20",
        "--node-monitor-grace-period=30m",
    ),
    "scheduler": CLIENT_LIMITS,
}
"""Kueue's limits are those of its chart already. The grace period is for a thousand simulated nodes,
which renew their leases late on a busy machine and would not all be ready at once."""

STATE: Final = {
    "jobsets": "/apis/jobset.x-k8s.io/v1alpha2/jobsets",
    "jobs": "/apis/batch/v1/jobs",
    "pods": "/api/v1/pods",
    "events": "/api/v1/events",
    "workloads": f"/apis/{naming.KUEUE_API}/workloads",
    "clusterqueues": f"/apis/{naming.KUEUE_API}/clusterqueues",
}
"""Objects that are kept when a benchmark fails."""


@dataclass(frozen=True)
class Embedded:
    """A running sandbox in `home`."""

    home: Path

    @property
    def kubeconfig(self) -> str:
        return str(self.home / "kubeconfig")

    def variables(self) -> dict[str, str]:
        """Return the variables of the sandbox's commands and plugins."""
        done = subprocess.run(
            [sys.executable, "-m", "sandbox", "env"],
            cwd=ROOT,
            env=os.environ | {"SANDBOX_HOME": str(self.home)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
            check=True,
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith("export ")]
        return dict(shlex.split(line)[1].split("=", 1) for line in lines)

    def tune(self) -> None:
        """Raise the clients' limits, and let pods run as long as their annotation requires."""
        services = [s for s in self._services() if s["name"] not in UNUSED_SERVICES]
        for service in services:
            service["argv"] += EXTRA_ARGUMENTS.get(service["name"], ())
            if service["name"] == "kwok":
                service["argv"] = [self._timed(argument) for argument in service["argv"]]
        self._write(services)
        self._end(UNUSED_SERVICES)

    def without_pods(self) -> None:
        """Stop what Kueue does not need."""
        Api(self.kubeconfig).merge(JOBSET, {"spec": {"replicas": 0}})
        wait_until(lambda: not self._pods("jobset"), "JobSet has stopped", READY_S)
        services = [s for s in self._services() if s["name"] not in POD_SERVICES]
        for service in services:
            if service["name"] == "controller-manager":
                kept = [one for one in service["argv"] if not one.startswith("--controllers=")]
                service["argv"] = [*kept, *WITHOUT_PODS]
        self._write(services)
        self._end(POD_SERVICES)

    def kueue_configuration(self) -> Json:
        """The Kueue configuration of the sandbox."""
        text = Api(self.kubeconfig).get(KUEUE_CONFIG)["data"][KUEUE_FILE]
        configuration: Json = yaml.safe_load(text)
        return configuration

    def restart_kueue(self, configuration: Json) -> None:
        """Restart Kueue with this configuration and wait until it is ready."""
        api = Api(self.kubeconfig)
        api.merge(KUEUE_CONFIG, {"data": {KUEUE_FILE: yaml.safe_dump(configuration)}})
        api.merge(KUEUE, {"spec": {"replicas": 0}})
        wait_until(lambda: not self._pods("kueue"), "Kueue has stopped", READY_S)
        api.merge(KUEUE, {"spec": {"replicas": 1}})
        wait_until(lambda: self.answers("kueue"), "Kueue is ready", READY_S)

    def _pods(self, controller: str) -> list[Json]:
        found: list[Json] = Api(self.kubeconfig).get(
            f"/api/v1/namespaces/{controller}-system/pods"
        )["items"]
        return found

    def kill(self, service: str) -> bool:
        """SIGKILL to a service and all it has started; the supervisor starts it again.

        False when it is dead already.
        """
        return self._signal(service, signal.SIGKILL)

    def save_state(self, folder: Path) -> None:
        """Write the logs of all services and controllers to `folder`, and the objects of a load if the API server
        answers."""
        shutil.copytree(self.home / "logs", folder / "logs")
        for pod in (self.home / "node/logs").glob("*-system_*"):
            shutil.copytree(pod, folder / "logs" / pod.name)
        api = Api(self.kubeconfig)
        with contextlib.suppress(ApiError, urllib3.exceptions.HTTPError, OSError):
            for kind, path in STATE.items():
                (folder / f"{kind}.json").write_text(json.dumps(api.get(path)))

    def answers(self, controller: str) -> bool:
        """Whether Kueue or JobSet reports ready."""
        addresses = [pod["status"].get("podIP") for pod in self._pods(controller)]
        return any(_is_ready(f"http://{one}:8081/readyz") for one in addresses if one)

    def pid(self, service: str) -> int | None:
        """The process of a service or a controller's pod, or the last one it had."""
        containers = f"node/pods/{service}-system_*/containers/*/*/run.json"
        files = [*self.home.glob(f"pids/{service}.json"), *self.home.glob(containers)]
        try:
            newest = max(files, key=lambda file: file.stat().st_mtime)
            return int(json.loads(newest.read_text())["pid"])
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
        """Delay KWOK's stage that completes pods by the duration in the pod's annotation."""
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


def _is_ready(url: str) -> bool:
    try:
        return urllib3.request("GET", url, timeout=2.0, retries=False).status == 200
    except urllib3.exceptions.HTTPError:
        return False


@contextlib.contextmanager
def running_cluster(show: Callable[[str], None], *, tuned: bool = True) -> Iterator[Embedded]:
    """Yield a cluster; delete it with all its data at exit, also after an exception.

    `tuned`: with Kueue and JobSet, and `Embedded.tune`, else as the sandbox starts it.
    """
    home = Path(tempfile.mkdtemp(prefix="trainyard-bench-"))
    # Measure the control plane without monitoring.
    env = os.environ | {"SANDBOX_HOME": str(home), "SANDBOX_MONITORING": "off"}

    def python(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", *command],
            cwd=ROOT,
            env=env,
            text=True,
            capture_output=True,
            timeout=START_S,
            check=False,
        )

    try:
        show("starting a cluster; the first start builds its tools, which takes long")
        for command in (("sandbox", "up", "--cluster-only"), ("sandbox.charts",))[: 1 + tuned]:
            done = python(*command)
            if done.returncode:
                last = f"{done.stdout[-2000:]}{done.stderr[-2000:]}"
                raise RuntimeError(f"python -m {' '.join(command)}: {last}")
        cluster = Embedded(home)
        if tuned:
            cluster.tune()
        yield cluster
    except TimeoutError as error:
        kept = Path(tempfile.mkdtemp(prefix="trainyard-failed-bench-"))
        show("saving logs and objects")
        Embedded(home).save_state(kept)
        raise TimeoutError(f"{error}; logs and objects of the cluster: {kept}") from error
    finally:
        show("deleting the cluster")
        with _signals_ignored():
            python("sandbox", "clean")
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
