"""Pod Security on the real API server: a run's pod is admitted, privileged variants are rejected."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from infra.domain import naming
from infra.tenancy import access, team
from sandbox.cluster import ClusterError
from tests.golden.example_runs import PREPARED, platform, run_of
from tests.sandbox.conftest import Cluster
from training.launchers import LAUNCHERS

pytestmark = [pytest.mark.sandbox, pytest.mark.core, pytest.mark.long(26)]

TEAM = "podsec"
NAMESPACE = naming.namespace(TEAM)
ENFORCE = "pod-security.kubernetes.io/enforce"

Pod = dict[str, Any]
Edit = Callable[[Pod], object]


def _security(spec: Pod) -> dict[str, Any]:
    found: dict[str, Any] = spec["containers"][0]["securityContext"]
    return found


def _volume(spec: Pod, **source: Any) -> None:
    spec["volumes"].append({"name": "more", **source})


def _init(spec: Pod, **security: Any) -> None:
    init = copy.deepcopy(spec["containers"][0]) | {"name": "init"}
    init["securityContext"] |= security
    spec["initContainers"] = [init]


def _port(spec: Pod, **port: int) -> None:
    spec["containers"][0]["ports"] = [{"containerPort": 8000, **port}]


def _probe(spec: Pod, **host: str) -> None:
    spec["containers"][0]["readinessProbe"] = {"httpGet": {"port": 80, **host}}


def _sysctl(spec: Pod, name: str) -> None:
    spec["securityContext"]["sysctls"] = [{"name": name, "value": "1"}]


ATTEMPTS: dict[str, tuple[Edit, Edit, str]] = {
    "privileged": (
        lambda s: _security(s).update(privileged=True, allowPrivilegeEscalation=True),
        lambda s: _security(s).update(privileged=False),
        "privileged",
    ),
    "a folder of the host": (
        lambda s: _volume(s, hostPath={"path": "/"}),
        lambda s: _volume(s, emptyDir={}),
        "hostPath",
    ),
    "a probe of another host": (
        lambda s: _probe(s, host="169.254.169.254"),
        lambda s: _probe(s),
        "probe or lifecycle host",
    ),
    "the host's network": (
        lambda s: s.update(hostNetwork=True),
        lambda s: s.update(hostNetwork=False),
        "hostNetwork=true",
    ),
    "the host's processes": (
        lambda s: s.update(hostPID=True),
        lambda s: s.update(shareProcessNamespace=True),
        "hostPID=true",
    ),
    "the host's shared memory": (
        lambda s: s.update(hostIPC=True),
        lambda s: _volume(s, emptyDir={"medium": "Memory"}),
        "hostIPC=true",
    ),
    "a port of the host": (
        lambda s: _port(s, hostPort=8000),
        lambda s: _port(s),
        "hostPort",
    ),
    "more rights than its parent": (
        lambda s: _security(s).pop("allowPrivilegeEscalation"),
        lambda s: _security(s).update(allowPrivilegeEscalation=False),
        "allowPrivilegeEscalation != false",
    ),
    "a capability": (
        lambda s: _security(s).update(capabilities={"drop": ["ALL"], "add": ["SYS_ADMIN"]}),
        lambda s: _security(s).update(capabilities={"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}),
        "unrestricted capabilities",
    ),
    "the capabilities of a runtime's default": (
        lambda s: _security(s).update(capabilities={"drop": ["NET_RAW"]}),
        lambda s: _security(s).update(capabilities={"drop": ["ALL", "NET_RAW"]}),
        "unrestricted capabilities",
    ),
    "root": (
        lambda s: _security(s).update(runAsUser=0),
        lambda s: _security(s).update(runAsUser=2000),
        "runAsUser=0",
    ),
    "the user of the image": (
        lambda s: s["securityContext"].update(runAsNonRoot=False),
        lambda s: s["securityContext"].update(runAsNonRoot=True),
        "runAsNonRoot != true",
    ),
    "any system call": (
        lambda s: _security(s).update(seccompProfile={"type": "Unconfined"}),
        lambda s: _security(s).update(seccompProfile={"type": "RuntimeDefault"}),
        "seccompProfile",
    ),
    "no AppArmor": (
        lambda s: _security(s).update(appArmorProfile={"type": "Unconfined"}),
        lambda s: _security(s).update(appArmorProfile={"type": "RuntimeDefault"}),
        "AppArmor",
    ),
    "a type of SELinux": (
        lambda s: _security(s).update(seLinuxOptions={"type": "spc_t"}),
        lambda s: _security(s).update(seLinuxOptions={"type": "container_t"}),
        "seLinuxOptions",
    ),
    "the kernel's settings": (
        lambda s: _sysctl(s, "kernel.msgmax"),
        lambda s: _sysctl(s, "net.ipv4.tcp_syncookies"),
        "sysctls",
    ),
    "an init container with privileges": (
        lambda s: _init(s, privileged=True, allowPrivilegeEscalation=True),
        lambda s: _init(s),
        "privileged",
    ),
    "an NFS server": (
        lambda s: _volume(s, nfs={"server": "10.0.0.1", "path": "/"}),
        lambda s: _volume(s, persistentVolumeClaim={"claimName": "checkpoints"}),
        "restricted volume types",
    ),
}
"""Attempt: its change of the pod, the closest allowed change, a part of the error message."""


def _pod(edit: Edit) -> str:
    template = LAUNCHERS["job"].render(run_of("job", dataset=PREPARED), platform())[-1]["spec"][
        "template"
    ]
    spec = copy.deepcopy(template["spec"])
    # The class is of a stack, and this is about the pod.
    del spec["priorityClassName"]
    edit(spec)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "attempt", "namespace": NAMESPACE},
        "spec": spec,
    }
    return json.dumps(pod)


def _create(cluster: Cluster, edit: Edit) -> None:
    """Asks the API server for all of admission, and for no pod."""
    cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=_pod(edit))


@pytest.fixture(scope="module")
def guarded(cluster: Cluster) -> Iterator[Cluster]:
    cluster.apply(team.namespace(TEAM), access.service_account(TEAM))
    yield cluster
    cluster.kubectl("delete", "namespace", NAMESPACE, "--timeout=180s")


def test_pod_of_a_run_is_admitted(guarded: Cluster) -> None:
    _create(guarded, lambda spec: None)


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_pod_is_rejected_with(guarded: Cluster, attempt: str) -> None:
    forbidden, allowed, word = ATTEMPTS[attempt]
    with pytest.raises(ClusterError, match="violates PodSecurity") as refused:
        _create(guarded, forbidden)
    assert word in str(refused.value)
    _create(guarded, allowed)


def test_all_attempts_are_admitted_without_the_namespace_label(guarded: Cluster) -> None:
    level = team.namespace(TEAM)["metadata"]["labels"][ENFORCE]
    guarded.kubectl("label", "namespace", NAMESPACE, f"{ENFORCE}-")
    try:
        for forbidden, _, _ in ATTEMPTS.values():
            _create(guarded, forbidden)
    finally:
        guarded.kubectl("label", "namespace", NAMESPACE, f"{ENFORCE}={level}")
    with pytest.raises(ClusterError, match="violates PodSecurity"):
        _create(guarded, ATTEMPTS["privileged"][0])


def test_team_members_cannot_remove_the_namespace_label(guarded: Cluster) -> None:
    groups = [
        *(naming.group(TEAM, role) for role in ("researcher", "lead")),
        naming.AUDITOR_GROUP,
        naming.DEPLOYER_GROUP,
    ]
    for group in groups:
        person = ["--as=team-member", f"--as-group={group}", "--as-group=system:authenticated"]
        with pytest.raises(ClusterError, match="forbidden"):
            guarded.kubectl("label", "namespace", NAMESPACE, f"{ENFORCE}-", *person)
    guarded.kubectl("label", "namespace", NAMESPACE, f"{ENFORCE}-", "--dry-run=server")
