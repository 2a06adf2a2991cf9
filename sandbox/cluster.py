"""Start the embedded cluster, report its health, and stop it."""

from __future__ import annotations

import json
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from infra.domain import naming
from sandbox import monitoring, paths, ports, process, rbac, service_config, services, supervisor
from sandbox.certificates import CertificateAuthority, write_private
from sandbox.monitoring import setup
from sandbox.node.runtime import stop_all
from sandbox.reporting import Report, SandboxError
from sandbox.services import ClusterSettings, Probe, Service
from sandbox.system_node import NODE, system_node
from sandbox.toolchain import Toolchain

READY_TIMEOUT_S = 120.0
"""Allows for a loaded two-core machine; about 10 s otherwise."""
STOP_GRACE_S = 15.0
BYTES_NEEDED = 1 * 1024**3
START_ATTEMPTS = 3
"""Starts with other ports when another program takes one between its choice and its use."""


class ClusterError(SandboxError):
    """The cluster did not start; the text is one line and names a log."""


class PortsTakenError(ClusterError):
    """Another program listens on ports that were chosen for services. `names`: those ports."""

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__(
            f"ports of {', '.join(sorted(names))}: another program took them while the services started;"
            " they must be free; run the same command again"
        )
        self.names = names


@dataclass(frozen=True)
class Health:
    """Health of one service. `state`: running, not ready or stopped."""

    name: str
    state: str
    pid: int | None


def up(tools: Toolchain, report: Report) -> ClusterSettings:
    """Start what does not run and wait until everything is ready; idempotent.

    A service whose port another program takes before it listens gets another port.

    Raises ClusterError: the disk is full, bubblewrap is missing, or a service does not get ready;
    SandboxError: SANDBOX_MONITORING is neither on nor off.
    """
    state = paths.state()
    _check_requirements(state)
    monitored = monitoring.is_enabled() and tools.can_monitor
    taken: frozenset[str] = frozenset()
    for left in reversed(range(START_ATTEMPTS)):
        settings = _prepare(state, tools, report, monitored=monitored, taken=taken)
        try:
            _start(settings, report)
            break
        except PortsTakenError as error:
            if not left:
                raise
            taken = error.names
    return settings


def _start(settings: ClusterSettings, report: Report) -> None:
    state = settings.state
    first, rest = services.storage_services(settings), services.controller_services(settings)
    if settings.monitored:
        rest += setup.monitoring_services(settings)
    installed = _installed(state, settings)
    same = _recorded_specs(state) == [_spec(service) for service in first + rest]
    everything = same and all(_running(state, one.name) for one in first + rest)
    if not (installed and everything):
        kept = [one for one in rest if installed or _running(state, one.name)]
        _apply_services(state, first + kept)
        wait_ready(settings, first, report)
        if not installed:
            _create_objects(state, settings)
        _create_prometheus_token(settings)
        _apply_services(state, first + rest)
    elif not is_up():
        _apply_services(state, first + rest)
    wait_ready(settings, first + rest, report)
    if not everything:
        _await_controllers(settings, report)


def _await_controllers(settings: ClusterSettings, report: Report) -> None:
    """Wait until the controllers that ran before are there again: the API server asks them about most objects.

    One that does not come back is reported; the next deployment may repair it.
    """
    deadline = time.monotonic() + READY_TIMEOUT_S
    while waiting := [name for name, probe in _controllers(settings) if not is_ready(probe)]:
        if time.monotonic() > deadline:
            report(f"{', '.join(waiting)}: not ready after {READY_TIMEOUT_S:.0f} s; see its log")
            return
        time.sleep(0.2)


def _controllers(settings: ClusterSettings) -> Iterator[tuple[str, Probe]]:
    """Yield name and readiness probe of the pods on the controllers' node, except those without an image."""
    selector = f"--field-selector=spec.nodeName={NODE}"
    for pod in json.loads(kubectl(settings, "get", "pods", "-A", selector, "-o", "json"))["items"]:
        status, name = pod["status"], f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        waiting = [one["state"].get("waiting", {}) for one in status.get("containerStatuses", [])]
        if any("Image" in one.get("reason", "") for one in waiting):
            continue
        for container in pod["spec"]["containers"]:
            if probe := container.get("readinessProbe", {}).get("httpGet"):
                ports = {one["name"]: one["containerPort"] for one in container["ports"]}
                port = ports.get(probe["port"], probe["port"])
                yield name, Probe(f"http://{status.get('podIP')}:{port}{probe['path']}")


def down(report: Report) -> int:
    """Stop every process of this sandbox; return their number."""
    state = paths.state()
    ended = 0
    for running in (monitoring.background_process(state), _running(state, "supervisor")):
        if running and running.alive:
            running.end(STOP_GRACE_S)
            ended += 1
    names = [spec["name"] for spec in _recorded_specs(state)]
    ended += _end_service(state, "node", report)
    # Before the API server, which waits for the end of their watches.
    ended += stop_all(state)
    for name in reversed([n for n in names if n != "node"]):
        ended += _end_service(state, name, report)
    return ended


def is_up() -> bool:
    return _running(paths.state(), "supervisor") is not None


def health() -> list[Health]:
    """Return the health of every service of this sandbox, the supervisor first."""
    state = paths.state()
    rows = []
    for name, probe in [
        ("supervisor", None),
        *((spec["name"], Probe(**spec["probe"])) for spec in _recorded_specs(state)),
    ]:
        running = _running(state, name)
        ready = "running" if probe is None or is_ready(probe) else "not ready"
        rows.append(Health(name, ready, running.pid) if running else Health(name, "stopped", None))
    return rows


def wait_ready(settings: ClusterSettings, wanted: Iterable[Service], report: Report) -> None:
    """Wait until every service answers its probe.

    Raises PortsTakenError: another program listens on a port of one of them;
    ClusterError: one is not ready in time; the text names its log and quotes the last line.
    """
    deadline = time.monotonic() + READY_TIMEOUT_S
    waiting = list(wanted)
    reported = ""
    while waiting:
        waiting = [service for service in waiting if not is_ready(service.probe)]
        names = ", ".join(service.name for service in waiting)
        if taken := _taken_ports(settings, waiting):
            raise PortsTakenError(taken)
        if waiting and time.monotonic() > deadline:
            raise ClusterError(_describe_not_ready(settings.state, waiting[0].name))
        if waiting:
            if names != reported:
                report(f"waiting for {names}")
                reported = names
            time.sleep(0.1)


def _taken_ports(settings: ClusterSettings, waiting: list[Service]) -> frozenset[str]:
    """Ports of services that do not run, on which a process listens that is not theirs."""
    return frozenset(
        name
        for service in waiting
        if not _running(settings.state, service.name)
        for name in ports.service_ports(service.name)
        if not ports.is_free(settings.ports[name])
        # Not a child that outlived the service, nor one that was started just now.
        and not process.find_by_marker(supervisor.service_marker(settings.state, service.name))
    )


def is_ready(probe: Probe) -> bool:
    """Whether the service answers its probe with status 200."""
    context = None
    try:
        if probe.ca:
            context = ssl.create_default_context(cafile=probe.ca)
            context.load_cert_chain(probe.certificate, probe.key)
        with urllib.request.urlopen(probe.url, timeout=2.0, context=context) as answer:
            return int(answer.status) == 200
    except (OSError, ValueError):
        return False


def kubectl(settings: ClusterSettings, *args: str, stdin: str | None = None) -> str:
    """Run kubectl as cluster-admin; return its output.

    Raises ClusterError: it failed; the text is the last line of its error.
    """
    done = subprocess.run(
        [settings.binary("kubectl"), f"--kubeconfig={settings.state.kubeconfig}", *args],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ClusterError(f"kubectl {' '.join(args[:2])}: {last}")
    return done.stdout


def _check_requirements(state: paths.State) -> None:
    if shutil.which("bwrap") is None:
        raise ClusterError(
            "bubblewrap is missing; install the package `bubblewrap` (command bwrap)"
        )
    state.home.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(state.home).free
    if free < BYTES_NEEDED:
        raise ClusterError(
            f"disk of {state.home}: {free / 1024**2:.0f} MiB free; the cluster needs"
            f" {BYTES_NEEDED / 1024**2:.0f} MiB; make room or set SANDBOX_HOME to another disk"
        )


def _prepare(
    state: paths.State,
    tools: Toolchain,
    report: Report,
    *,
    monitored: bool,
    taken: frozenset[str] = frozenset(),
) -> ClusterSettings:
    """Ensure certificates, ports and configuration files; valid ones are kept, but no port in `taken`."""
    for folder in (state.logs, state.pids, state.volumes, state.images, state.node, state.bin):
        folder.mkdir(parents=True, exist_ok=True)
    state.home.chmod(0o700)
    authority, front = CertificateAuthority(state.pki), services.FRONT_PROXY
    chosen, moved = ports.choose_ports(state.home / "ports.json", _holding_ports(state) - taken)
    for line in moved:
        report(line)
    settings = ClusterSettings(
        state=state,
        tools=tools,
        ports=chosen,
        ca=authority.pair.certificate,
        pairs={i.name: authority.issue(i) for i in service_config.IDENTITIES}
        | {front.name: CertificateAuthority(state.pki / front.name).issue(front)},
        service_account=authority.service_account_key(),
        monitored=monitored,
    )
    _write_configuration(settings)
    return settings


def _holding_ports(state: paths.State) -> frozenset[str]:
    """Names of the ports whose service is running."""
    names = [spec["name"] for spec in _recorded_specs(state) if _running(state, spec["name"])]
    return frozenset(port for name in names for port in ports.service_ports(name))


def _keep_namespace(path: Path, document: service_config.Document) -> None:
    """Keep the namespace that the user has selected: `kubectl config set-context --current --namespace`."""
    known = yaml.safe_load(path.read_text()) if path.is_file() else None
    contexts = known.get("contexts") or [] if isinstance(known, dict) else []
    for context in contexts:
        for fresh in document["contexts"]:
            if fresh["name"] == context.get("name") and "namespace" in context.get("context", {}):
                fresh["context"]["namespace"] = context["context"]["namespace"]


def _write_configuration(settings: ClusterSettings) -> None:
    for client in service_config.CLIENTS:
        document = service_config.kubeconfig(
            settings.ports["apiserver"], settings.ca, settings.pairs[client]
        )
        path = Path(settings.kubeconfig(client))
        _keep_namespace(path, document)
        _write(path, yaml.safe_dump(document))
    for name, document in {
        "audit.yaml": service_config.audit_policy(),
        "egress.yaml": service_config.egress_selection(),
        services.KWOK_POD_COMPLETE: service_config.kwok_pod_complete(
            settings.tools.assets["kwok"] / services.KWOK_STAGES / "pod/fast/pod-complete.yaml"
        ),
        **(setup.config_files(settings) if settings.monitored else {}),
    }.items():
        _write(Path(settings.config(name)), yaml.safe_dump(document))


def _write(path: Path, text: str) -> None:
    """Write a file with mode 0600 unless its content is the same."""
    if path.exists() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    write_private(path, text.encode())


def _objects(settings: ClusterSettings) -> list[dict[str, Any]]:
    monitored = rbac.monitoring_objects() if settings.monitored else []
    return [*rbac.rbac_objects(), system_node(), *monitored]


def _create_prometheus_token(settings: ClusterSettings) -> None:
    if settings.monitored and setup.token_is_due(settings):
        account = (rbac.PROMETHEUS, f"--namespace={naming.MONITORING_NAMESPACE}")
        made = kubectl(settings, "create", "token", *account, f"--duration={setup.TOKEN_HOURS}h")
        write_private(setup.token_file(settings), made.strip().encode())


def _installed(state: paths.State, settings: ClusterSettings) -> bool:
    marker = state.home / "objects.json"
    return marker.exists() and marker.read_text() == json.dumps(_objects(settings))


def _create_objects(state: paths.State, settings: ClusterSettings) -> None:
    objects = _objects(settings)
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    kubectl(settings, "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=listed)
    (state.home / "objects.json").write_text(json.dumps(objects))


def _spec(service: Service) -> dict[str, Any]:
    env = services.base_environment() | service.env
    return {"name": service.name, "argv": service.argv, "env": env, "probe": asdict(service.probe)}


def _recorded_specs(state: paths.State) -> list[dict[str, Any]]:
    try:
        specs: list[dict[str, Any]] = json.loads(supervisor.services_file(state).read_text())
    except (OSError, ValueError):
        return []
    return specs


def _running(state: paths.State, name: str) -> process.Process | None:
    known = process.load(state.pids / f"{name}.json")
    return known if known and known.alive else None


def _apply_services(state: paths.State, wanted: list[Service]) -> None:
    """Pass the list of services to the supervisor; start it if it does not run."""
    _write(supervisor.services_file(state), json.dumps([_spec(s) for s in wanted], indent=1))
    if keeper := _running(state, "supervisor"):
        keeper.send(signal.SIGHUP)
        return
    env = services.base_environment() | {
        "SANDBOX_HOME": str(state.home),
        "PYTHONPATH": str(paths.PROJECT),
        "SANDBOX_SERVICE": supervisor.service_marker(state, "supervisor"),
    }
    argv = [sys.executable, "-m", "sandbox.supervisor"]
    # Blocked until the supervisor handles it: another start may send it before that.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        started = process.spawn(argv, env, state.home, state.logs / "supervisor.log")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    process.save(state.pids / "supervisor.json", started)


def _end_service(state: paths.State, name: str, report: Report) -> int:
    known = _running(state, name)
    found = known is not None
    if known:
        report(f"stopping {name}")
        known.end(STOP_GRACE_S)
    # Children that outlived a wrapper, and processes without a pid file yet.
    for left in process.find_by_marker(supervisor.service_marker(state, name)):
        left.end(STOP_GRACE_S)
        found = True
    (state.pids / f"{name}.json").unlink(missing_ok=True)
    return int(found)


def _describe_not_ready(state: paths.State, name: str) -> str:
    log = state.logs / f"{name}.log"
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    last = lines[-1][:300] if lines else "nothing was logged"
    return f"{name}: not ready after {READY_TIMEOUT_S:.0f} s; see {log} (last line: {last})"


def current_settings(tools: Toolchain) -> ClusterSettings:
    """Return the settings of a sandbox that was started before; only stale files are rewritten."""
    state = paths.state()
    return _prepare(
        state, tools, lambda _: None, monitored=monitoring.prometheus_url(state) is not None
    )
