"""Pod Security's restricted level as an admission policy, except for one capability.

RDMA pins memory, which needs IPC_LOCK, and no level of Pod Security allows only that. The namespace of a team
with `rdma` therefore has the level `privileged`, and this policy enforces all controls of `restricted`
(https://kubernetes.io/docs/concepts/security/pod-security-standards/) as of Kubernetes 1.34 in its place.
"""

from __future__ import annotations

from typing import Final

from infra.domain import naming
from infra.kubernetes import pod_templates
from infra.kubernetes.admission_policy import Rule, policy, texts
from infra.kubernetes.objects import Manifest

RDMA_LABELS: Final = {naming.RDMA: "true"}

_CAPABILITIES: Final = ["IPC_LOCK", "NET_BIND_SERVICE"]
_VOLUMES: Final = [
    "configMap",
    "downwardAPI",
    "emptyDir",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
]
_SELINUX_TYPES: Final = [
    "",
    "container_t",
    "container_init_t",
    "container_kvm_t",
    "container_engine_t",
]
_SYSCTLS: Final = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
]
_PROFILES: Final = ["RuntimeDefault", "Localhost"]
_APPARMOR_ANNOTATION: Final = "container.apparmor.security.beta.kubernetes.io/"
_HANDLERS: Final = (
    "c.?livenessProbe",
    "c.?readinessProbe",
    "c.?startupProbe",
    "c.?lifecycle.?postStart",
    "c.?lifecycle.?preStop",
)


def _pods(test: str) -> str:
    return f"variables.pods.all(p, {test})"


def _containers(test: str) -> str:
    """Return CEL: `test` holds for every container `c` of every pod `p`."""
    every = (
        "(p.spec.?containers.orValue([]) + p.spec.?initContainers.orValue([]) + "
        "p.spec.?ephemeralContainers.orValue([]))"
    )
    return _pods(f"{every}.all(c, {test})")


_POD: Final = "p.spec.?securityContext"
_OWN: Final = "c.?securityContext"


def _both(test: str) -> str:
    """Return CEL: `test`, with SECURITY for a securityContext, holds for pods and their containers."""
    return (
        f"{_pods(test.replace('SECURITY', _POD))} && {_containers(test.replace('SECURITY', _OWN))}"
    )


def _host_access() -> list[Rule]:
    return [
        Rule(
            holds=_pods(
                " && ".join(
                    f"!p.spec.?{name}.orValue(false)"
                    for name in ("hostNetwork", "hostPID", "hostIPC")
                )
            ),
            message="host namespaces are not allowed; remove hostNetwork, hostPID and hostIPC",
        ),
        Rule(
            holds=_containers("c.?ports.orValue([]).all(q, q.?hostPort.orValue(0) == 0)"),
            message="host ports are not allowed; remove hostPort",
        ),
        Rule(
            holds=_containers(
                " && ".join(
                    f"{handler}.?{kind}.?host.orValue('') == ''"
                    for handler in _HANDLERS
                    for kind in ("httpGet", "tcpSocket")
                )
            ),
            message="probes and hooks may call only their own pod; remove host from them",
        ),
        Rule(
            holds=_pods(
                "p.spec.?volumes.orValue([]).all(v, "
                f"v.all(k, k == 'name' || k in {texts(_VOLUMES)}))"
            ),
            message=f"a volume type is not allowed; valid are {', '.join(_VOLUMES)}; use a claim",
        ),
        Rule(
            holds=_both("!SECURITY.?windowsOptions.?hostProcess.orValue(false)"),
            message="host processes are not allowed; remove hostProcess",
        ),
    ]


def _privilege() -> list[Rule]:
    return [
        Rule(
            holds=_containers(f"!{_OWN}.?privileged.orValue(false)"),
            message="privileged containers are not allowed; remove privileged",
        ),
        Rule(
            holds=_containers(f"!{_OWN}.?allowPrivilegeEscalation.orValue(true)"),
            message="privilege escalation is not allowed; set allowPrivilegeEscalation: false on every container",
        ),
        Rule(
            holds=_containers(
                f"'ALL' in {_OWN}.?capabilities.?drop.orValue([]) && "
                f"{_OWN}.?capabilities.?add.orValue([]).all(a, a in {texts(_CAPABILITIES)})"
            ),
            message=(
                "capabilities are not valid; ALL must be dropped, "
                f"and only {' and '.join(_CAPABILITIES)} may be added; correct them"
            ),
        ),
        Rule(
            holds=(
                _both("SECURITY.?runAsUser.orValue(1) != 0")
                + " && "
                + _containers(f"{_OWN}.?runAsNonRoot.orValue({_POD}.?runAsNonRoot.orValue(false))")
            ),
            message="running as root is not allowed; set runAsNonRoot: true, and a runAsUser other than 0",
        ),
    ]


def _confinement() -> list[Rule]:
    return [
        Rule(
            holds=(
                _pods(
                    f"{_POD}.?seccompProfile.?type.orValue('{_PROFILES[0]}') in {texts(_PROFILES)}"
                )
                + " && "
                + _containers(
                    f"{_OWN}.?seccompProfile.?type.orValue("
                    f"{_POD}.?seccompProfile.?type.orValue('')) in {texts(_PROFILES)}"
                )
            ),
            message="a seccomp profile is required; set seccompProfile.type: RuntimeDefault",
        ),
        Rule(
            holds=(
                _both(
                    f"SECURITY.?appArmorProfile.?type.orValue('{_PROFILES[0]}') "
                    f"in {texts(_PROFILES)}"
                )
                + " && "
                + _pods(
                    "p.?metadata.?annotations.orValue({})"
                    f".all(k, !k.startsWith('{_APPARMOR_ANNOTATION}') || "
                    "p.metadata.annotations[k].matches('^(runtime/default|localhost/.*)?$'))"
                )
            ),
            message="AppArmor must not be disabled; remove the profile Unconfined",
        ),
        Rule(
            holds=_both(
                f"SECURITY.?seLinuxOptions.?type.orValue('') in {texts(_SELINUX_TYPES)} && "
                "SECURITY.?seLinuxOptions.?user.orValue('') == '' && "
                "SECURITY.?seLinuxOptions.?role.orValue('') == ''"
            ),
            message="changing SELinux options is not allowed; remove seLinuxOptions",
        ),
        Rule(
            holds=_containers(f"{_OWN}.?procMount.orValue('Default') == 'Default'"),
            message="/proc must be masked; remove procMount",
        ),
        Rule(
            holds=_pods(f"{_POD}.?sysctls.orValue([]).all(s, s.name in {texts(_SYSCTLS)})"),
            message=f"a sysctl is not allowed; valid are {', '.join(_SYSCTLS)}; remove the others",
        ),
    ]


def restricted_except_rdma() -> Manifest:
    """Return the policy, which applies to namespaces of teams with `rdma`."""
    return policy(
        "rdma-pods",
        matches=pod_templates.everything_with_pods(),
        conditions=pod_templates.NEW_PODS,
        variables={"pods": pod_templates.PODS["pods"]},
        rules=[*_host_access(), *_privilege(), *_confinement()],
        also_labelled=RDMA_LABELS,
    )
