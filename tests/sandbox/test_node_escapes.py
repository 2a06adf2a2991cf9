"""Probes and hooks of containers on process nodes have the rights of their container, not of the agent."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sandbox.node import egress, shim
from sandbox.node.container_entry import run_exec
from tests.sandbox.conftest import Cluster
from tests.sandbox.node_kit import Kit, processes_with, serving, until

Json = dict[str, Any]

KEPT = "kept"
READ_ONLY, WRITABLE = "/read-only", "/writable"
FILE = "file"
DONE = "done"
"""File in the writable volume: capabilities and no_new_privs of the handler that has run."""
SEEN = "seen"
"""File in the writable volume until which a preStop hook waits: the volume goes with the container."""

OVERWRITE = (
    f"mount -o remount,bind,rw {READ_ONLY}; unshare -r true; echo taken > {READ_ONLY}/{FILE}; "
    f"grep -E '^(Cap|NoNew)' /proc/self/status > {WRITABLE}/new; mv {WRITABLE}/new {WRITABLE}/{DONE}"
)
READ = f"grep {KEPT} {READ_ONLY}/{FILE} && touch {WRITABLE}/{DONE}"
WITHOUT_PRIVILEGES = {
    "CapInh:\t0000000000000000",
    "CapPrm:\t0000000000000000",
    "CapEff:\t0000000000000000",
    "CapBnd:\t0000000000000000",
    "CapAmb:\t0000000000000000",
    "NoNewPrivs:\t1",
}


@dataclass(frozen=True)
class HandlerAttempt:
    """`kind`: where a container names its handler."""

    kind: str

    def main(self, script: str) -> Json:
        """Fields of a container that stays until it is deleted, and has `script` as handler."""
        handler: Json
        if self.kind == "preStop":
            wait = f"{script}; until test -e {WRITABLE}/{SEEN}; do sleep 0.1; done"
            handler = {"lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", wait]}}}}
        else:
            probe = {"exec": {"command": ["sh", "-c", script]}}
            handler = {self.kind: probe | {"periodSeconds": 1, "failureThreshold": 300}}
        begin = f"echo {KEPT} > {WRITABLE}/{FILE}; trap exit TERM; sleep 600 & wait"
        mounts = [
            {"name": "v", "mountPath": WRITABLE},
            {"name": "v", "mountPath": READ_ONLY, "readOnly": True},
        ]
        return {"command": ["sh", "-c", begin], "volumeMounts": mounts} | handler


def every() -> list[HandlerAttempt]:
    """Return one attempt of each kind; process nodes refuse pods with postStart or startupProbe."""
    kinds = ("readinessProbe", "livenessProbe", "preStop")
    return [HandlerAttempt(kind) for kind in kinds]


pytestmark = [pytest.mark.sandbox, pytest.mark.core, pytest.mark.long(10)]

USERS = {"root": 0, "another user": 1000}


@pytest.fixture(scope="module")
def kit(cluster: Cluster) -> Iterator[Kit]:
    with serving(cluster, "escapes", nodes=1) as served:
        yield served


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("attempt", every(), ids=lambda attempt: attempt.kind)
def test_handler_does_not_leave_its_container(kit: Kit, attempt: HandlerAttempt, user: str) -> None:
    volume = _run(kit, attempt, OVERWRITE, user)
    held = set((volume / DONE).read_text().splitlines())
    kept = (volume / FILE).read_text()
    (volume / SEEN).touch()
    assert kept == f"{KEPT}\n"
    assert held == WITHOUT_PRIVILEGES


@pytest.mark.parametrize("attempt", every(), ids=lambda attempt: attempt.kind)
def test_handler_reads_its_containers_files(kit: Kit, attempt: HandlerAttempt) -> None:
    (_run(kit, attempt, READ, "root") / SEEN).touch()


def test_a_probe_that_takes_too_long_is_killed_with_its_children(kit: Kit) -> None:
    marker = uuid.uuid4().hex
    script = f"trap '' HUP TERM; sh -c 'sleep 600; :' {marker} & wait"
    once = {"timeoutSeconds": 3, "periodSeconds": 3600}
    probe = {"exec": {"command": ["sh", "-c", script]}, **once}
    kit.run("slow", main={"command": ["sleep", "600"], "readinessProbe": probe})
    until(lambda: processes_with(marker) or None, "the probe runs")
    until(lambda: not processes_with(marker), "nothing is left of it")
    assert kit.attempt(kit.pod("slow")).exit() is None


def test_no_handler_runs_in_another_process_that_got_the_pid_of_its_container(kit: Kit) -> None:
    for name in ("ended", "stranger"):
        kit.run(name, "sleep 600")
    attempt, stranger = (
        kit.attempt(kit.await_phase(one, "Running")) for one in ("ended", "stranger")
    )
    mine, other = attempt.run(wait_s=10), stranger.run(wait_s=10)
    assert mine and other and run_exec(["true"], attempt, 10) is None
    shim.save(str(attempt.path), "run.json", mine | {"pid": other["pid"]})
    assert run_exec(["true"], attempt, 10) == "container: it has ended"
    shim.save(str(attempt.path), "run.json", mine)


@pytest.mark.parametrize("user", USERS)
def test_no_container_has_the_socket_that_leads_to_every_service(kit: Kit, user: str) -> None:
    place = kit.cluster.state.home / egress.SOCKET
    assert place.is_socket()
    script = f"""
    for root in / /proc/[0-9]*/root/; do
        test -S "$root{place}" && echo "$root has it"
    done
    find / -xdev -name {place.name} 2>/dev/null
    echo looked
    """
    security = {"runAsUser": USERS[user], "runAsGroup": USERS[user]}
    name = f"socket-{USERS[user]}"
    kit.run(name, script, securityContext=security)
    log = kit.log(kit.await_phase(name, "Succeeded"))
    assert log.split() == ["looked"]


def _run(kit: Kit, attempt: HandlerAttempt, script: str, user: str) -> Path:
    """Run a pod until its handler has run; return its volume's folder on the host."""
    name = f"{attempt.kind.lower()}-{uuid.uuid4().hex[:6]}"
    security = {"runAsUser": USERS[user], "runAsGroup": USERS[user]}
    volumes = [{"name": "v", "emptyDir": {}}]
    kit.run(name, main=attempt.main(script), volumes=volumes, securityContext=security)
    volume = kit.folder(kit.await_phase(name, "Running")).volumes / "v"
    until(lambda: (volume / FILE).exists(), "the container has begun")
    if attempt.kind == "preStop":
        kit.delete(name, 60)
    until(lambda: (volume / DONE).exists(), "the handler has run")
    return volume
