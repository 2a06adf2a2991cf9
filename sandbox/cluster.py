"""Brings the embedded cluster up, says how it is, and takes it down."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from sandbox import monitoring, paths, ports, process, service_config, services, supervisor
from sandbox.certificates import Authority, write_private
from sandbox.monitoring import processes, prometheus_client, rbac, setup
from sandbox.services import Probe, Service, Setting
from sandbox.toolchain import Toolchain

READY_TIMEOUT_S = 120.0
"""For a loaded two-core machine; a healthy one needs about 10 s."""
STOP_GRACE_S = 15.0
BYTES_NEEDED = 1 * 1024**3

Say = Callable[[str], None]


class ClusterError(Exception):
    """The cluster did not come up; the text is one line for the user and names a log."""


@dataclass(frozen=True)
class Health:
    """One service: `state` is running, not ready or stopped."""

    name: str
    state: str
    pid: int | None


def up(tools: Toolchain, say: Say) -> Setting:
    """Start what does not run, and wait until all of it is ready. Does nothing that is done already.

    Raises:
        ClusterError: no room, bubblewrap missing, or a service that does not get ready.
        MonitoringError: SANDBOX_MONITORING has another value than on and off.
    """
    state = paths.state()
    _require(state)
    setting = _prepare(state, tools, say, watched=monitoring.wanted())
    first, rest = services.storage(setting), services.controllers(setting)
    if setting.watched:
        rest += processes.services(setting)
    installed, running = _installed(state, setting), _running(state)
    everything = _same_services(state, first + rest) and all(map(running, first + rest))
    if not (installed and everything):
        _supervise(state, first + [one for one in rest if installed or running(one)])
        wait_ready(state, first, say)
        _install_add_ons(state, setting, say)
        _give_token(setting)
        _supervise(state, first + rest)
    elif not _supervised(state):
        _supervise(state, first + rest)
    wait_ready(state, first + rest, say)
    return setting


def down(say: Say) -> int:
    """End every process of this sandbox; returns how many there were."""
    state = paths.state()
    ended = 0
    keeper = process.load(state.pids / "supervisor.json")
    if keeper and keeper.alive:
        keeper.end(STOP_GRACE_S)
        ended += 1
    names = [spec["name"] for spec in _recorded(state)]
    for name in ["node", *reversed([n for n in names if n != "node"])]:
        ended += _end_service(state, name, say)
    return ended


def health() -> list[Health]:
    """How every service of this sandbox is, the supervisor first."""
    state = paths.state()
    keeper = process.load(state.pids / "supervisor.json")
    alive = keeper is not None and keeper.alive
    rows = [
        Health(
            "supervisor",
            "running" if alive else "stopped",
            keeper.pid if alive and keeper else None,
        )
    ]
    for spec in _recorded(state):
        running = process.load(state.pids / f"{spec['name']}.json")
        if running is None or not running.alive:
            rows.append(Health(spec["name"], "stopped", None))
            continue
        ready = answers(Probe(**spec["probe"]))
        rows.append(Health(spec["name"], "running" if ready else "not ready", running.pid))
    return rows


def wait_ready(state: paths.State, wanted: Iterable[Service], say: Say) -> None:
    """Wait until every service answers its probe.

    Raises:
        ClusterError: one did not in time; names its log and quotes its last line.
    """
    deadline = time.monotonic() + READY_TIMEOUT_S
    waiting = list(wanted)
    told = ""
    while waiting:
        waiting = [service for service in waiting if not answers(service.probe)]
        names = ", ".join(service.name for service in waiting)
        if waiting and time.monotonic() > deadline:
            raise ClusterError(_why_not_ready(state, waiting[0].name))
        if waiting:
            if names != told:
                say(f"waiting for {names}")
                told = names
            time.sleep(0.1)


def answers(probe: Probe) -> bool:
    """Whether the service answers its probe with success."""
    context = None
    try:
        if probe.ca:
            context = ssl.create_default_context(cafile=probe.ca)
            context.load_cert_chain(probe.certificate, probe.key)
        with urllib.request.urlopen(probe.url, timeout=2.0, context=context) as answer:
            return int(answer.status) == 200
    except (OSError, ValueError):
        return False


def kubectl(setting: Setting, *args: str, stdin: str | None = None) -> str:
    """Run kubectl as the cluster's administrator.

    Raises:
        ClusterError: it failed; the text is its last line.
    """
    done = subprocess.run(
        [setting.binary("kubectl"), f"--kubeconfig={setting.state.kubeconfig}", *args],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ClusterError(f"kubectl {' '.join(args[:2])}: {last}")
    return done.stdout


def _require(state: paths.State) -> None:
    if shutil.which("bwrap") is None:
        raise ClusterError(
            "bubblewrap is missing: install the package `bubblewrap` (command bwrap)"
        )
    state.home.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(state.home).free
    if free < BYTES_NEEDED:
        raise ClusterError(
            f"disk of {state.home}: {free / 1024**2:.0f} MiB free, the cluster needs"
            f" {BYTES_NEEDED / 1024**2:.0f} MiB; make room or set SANDBOX_HOME to another disk"
        )


def _prepare(state: paths.State, tools: Toolchain, say: Say, *, watched: bool) -> Setting:
    """Certificates, ports and configuration files; all kept when they are still good."""
    for folder in (state.logs, state.pids, state.volumes, state.images, state.node, state.bin):
        folder.mkdir(parents=True, exist_ok=True)
    state.home.chmod(0o700)
    authority = Authority(state.pki)
    chosen, moved = ports.choose(state.home / "ports.json", _holding_ports(state))
    for line in moved:
        say(line)
    setting = Setting(
        state=state,
        tools=tools,
        ports=chosen,
        ca=authority.pair.certificate,
        pairs={i.name: authority.issue(i) for i in service_config.IDENTITIES},
        service_account=authority.service_account_key(),
        watched=watched,
    )
    _write_configuration(setting)
    return setting


def _holding_ports(state: paths.State) -> frozenset[str]:
    """Names of ports whose own service runs now."""
    alive = set()
    for spec in _recorded(state):
        running = process.load(state.pids / f"{spec['name']}.json")
        if running and running.alive:
            alive.add(spec["name"])
    return frozenset(n for n in ports.NAMES if n in alive or n.rpartition("-")[0] in alive)


def _write_configuration(at: Setting) -> None:
    for client in service_config.CLIENTS:
        document = service_config.kubeconfig(at.ports["apiserver"], at.ca, at.pairs[client])
        _write(Path(at.kubeconfig(client)), yaml.safe_dump(document))
    certificates = Path(at.config("webhook"))
    certificates.mkdir(parents=True, exist_ok=True)
    pair = at.pairs["webhook"]
    _write(certificates / "tls.crt", pair.certificate.read_text())
    _write(certificates / "tls.key", pair.key.read_text())
    for name, document in {
        "audit.yaml": service_config.audit_policy(),
        "kueue.yaml": service_config.kueue(at.ports, certificates),
        "jobset.yaml": service_config.jobset(at.ports, certificates),
        **(setup.files(at) if at.watched else {}),
    }.items():
        _write(Path(at.config(name)), yaml.safe_dump(document))


def _write(path: Path, text: str) -> None:
    """Replace a file only when it differs, with mode 0600."""
    if path.exists() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    write_private(path, text.encode())


def _add_ons(at: Setting) -> list[dict[str, Any]]:
    documents: list[dict[str, Any]] = []
    for name in ("kueue", "jobset"):
        port = at.ports[f"{name}-webhook"]
        documents += service_config.add_on_documents(at.tools.assets[name], name, port, at.ca)
    return documents + _watchers(at)


def _watchers(at: Setting) -> list[dict[str, Any]]:
    return rbac.documents() if at.watched else []


def _give_token(at: Setting) -> None:
    """Prometheus' own, which only the API server can make."""
    if at.watched and setup.needs_token(at):
        account = (rbac.PROMETHEUS, f"--namespace={rbac.NAMESPACE}")
        made = kubectl(at, "create", "token", *account, f"--duration={rbac.TOKEN_HOURS}h")
        write_private(setup.token(at), made.strip().encode())


def _installed(state: paths.State, at: Setting) -> bool:
    """Whether the add-ons' manifests were applied for these very ports, certificates and versions."""
    marker = state.home / "add-ons.json"
    return marker.exists() and marker.read_text() == _add_ons_key(at)


def _add_ons_key(at: Setting) -> str:
    assets = {name: str(at.tools.assets[name]) for name in ("kueue", "jobset")}
    hooks = {name: at.ports[f"{name}-webhook"] for name in ("kueue", "jobset")}
    rendering = Path(service_config.__file__).read_text()
    text = json.dumps([assets, hooks, at.ca.read_text(), rendering, _watchers(at)])
    return hashlib.sha256(text.encode()).hexdigest()


def _install_add_ons(state: paths.State, at: Setting, say: Say) -> None:
    if _installed(state, at):
        return
    say("installing the CRDs and webhooks of Kueue and JobSet")
    dump = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text = "---\n".join(yaml.dump(document, Dumper=dump) for document in _add_ons(at))
    kubectl(at, "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)
    (state.home / "add-ons.json").write_text(_add_ons_key(at))


def _spec(service: Service) -> dict[str, Any]:
    env = services.base_environment() | service.env
    return {"name": service.name, "argv": service.argv, "env": env, "probe": asdict(service.probe)}


def _recorded(state: paths.State) -> list[dict[str, Any]]:
    try:
        specs: list[dict[str, Any]] = json.loads(supervisor.services_file(state).read_text())
    except (OSError, ValueError):
        return []
    return specs


def _same_services(state: paths.State, wanted: list[Service]) -> bool:
    return _recorded(state) == [_spec(service) for service in wanted]


def _running(state: paths.State) -> Callable[[Service], bool]:
    def check(service: Service) -> bool:
        running = process.load(state.pids / f"{service.name}.json")
        return running is not None and running.alive

    return check


def _supervised(state: paths.State) -> bool:
    keeper = process.load(state.pids / "supervisor.json")
    return keeper is not None and keeper.alive


def _supervise(state: paths.State, wanted: list[Service]) -> None:
    """Hand the list of services to the supervisor, starting it if need be."""
    _write(supervisor.services_file(state), json.dumps([_spec(s) for s in wanted], indent=1))
    pid_file = state.pids / "supervisor.json"
    keeper = process.load(pid_file)
    if keeper and keeper.alive:
        keeper.send(signal.SIGHUP)
        return
    env = services.base_environment() | {
        "SANDBOX_HOME": str(state.home),
        "PYTHONPATH": str(paths.PROJECT),
        "SANDBOX_SERVICE": supervisor.mark(state, "supervisor"),
    }
    argv = [sys.executable, "-m", "sandbox.supervisor"]
    started = process.spawn(argv, env, state.home, state.logs / "supervisor.log")
    process.save(pid_file, started)


def _end_service(state: paths.State, name: str, say: Say) -> int:
    pid_file = state.pids / f"{name}.json"
    known = process.load(pid_file)
    found = known is not None and known.alive
    if known and found:
        say(f"stopping {name}")
        known.end(STOP_GRACE_S)
    # What a wrapper leaves behind, and what has no pid file yet.
    for left in process.marked(supervisor.mark(state, name)):
        left.end(STOP_GRACE_S)
        found = True
    pid_file.unlink(missing_ok=True)
    return int(found)


def _why_not_ready(state: paths.State, name: str) -> str:
    log = state.logs / f"{name}.log"
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    last = lines[-1][:300] if lines else "nothing was logged"
    return f"{name} is not ready after {READY_TIMEOUT_S:.0f} s; read {log} (last line: {last})"


def current(tools: Toolchain) -> Setting:
    """The setting of a sandbox that was brought up before; starts and changes nothing but stale files."""
    state = paths.state()
    return _prepare(state, tools, lambda _: None, watched=prometheus_client.url(state) is not None)
