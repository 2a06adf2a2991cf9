"""The run page in the cluster: `trainyard ui --behind-proxy` and oauth2-proxy, which signs users in, in one pod.

The page listens on the pod's loopback, so only the proxy reaches it and only the proxy sets its headers. It asks
the API server for each read whether the signed-in user may do it: ops/ui/users.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from infra.addons import controllers, manifests
from infra.addons.isolation import isolation
from infra.addons.manifests import rule
from infra.addons.model import AddOn, Image, Installable, Section
from infra.domain import naming
from infra.kubernetes.objects import Manifest, manifest
from infra.sections.observability import IngressConfig
from infra.sections.programs import RunPageConfig

NAMESPACE: Final = naming.RUN_PAGE_NAMESPACE
NAME: Final = naming.RUN_PAGE_ACCOUNT
PORT: Final = 8642
"""On the pod's loopback."""
PROXY_PORT: Final = 4180
_PROXY: Final = "oauth2-proxy"
_READ: Final = ("get", "list")

EVERYWHERE: Final = (
    rule("", ["nodes"], _READ),
    rule(
        "kueue.x-k8s.io",
        ["clusterqueues", "cohorts", "resourceflavors", "topologies", "workloadpriorityclasses"],
        _READ,
    ),
    rule("scheduling.k8s.io", ["priorityclasses"], _READ),
    rule("authorization.k8s.io", ["subjectaccessreviews"], ["create"]),
)
"""Rights in the whole cluster; in namespaces of teams it has those of infra/tenancy/access.py."""


def page_container(
    page: RunPageConfig, teams: Sequence[str], *, prometheus: bool, port: int = PORT
) -> dict[str, Any]:
    words = ["ui", "--behind-proxy", "--port", str(port), "--teams", ",".join(teams)]
    words += [f"--user-prefix={page.username_prefix}"] if page.username_prefix else []
    words += [f"--group-prefix={page.groups_prefix}"] if page.groups_prefix else []
    if prometheus:
        words += ["--prometheus", naming.PROMETHEUS_URL]
    # The kubelet does not reach the pod's loopback.
    look = f"import urllib.request as r; r.urlopen('http://127.0.0.1:{port}/healthz', timeout=5)"
    probe = {"exec": {"command": ["python", "-c", look]}, "periodSeconds": 20, "timeoutSeconds": 10}
    return manifests.command(
        NAME,
        page.image,
        words,
        readinessProbe=probe,
        livenessProbe={**probe, "initialDelaySeconds": 60, "failureThreshold": 6},
        resources=controllers.resources("100m", "512Mi"),
        volumeMounts=[{"name": "tmp", "mountPath": "/tmp"}],
    )


def proxy_container(page: RunPageConfig, port: int = PORT) -> dict[str, Any]:
    """Return the container that signs users in. It removes the headers that it sets from what it receives."""
    flags = {
        "provider": "oidc",
        "oidc-issuer-url": page.issuer,
        "client-id": page.client_id,
        "redirect-url": f"{page.url.rstrip('/')}/oauth2/callback",
        "oidc-email-claim": page.username_claim,
        "oidc-groups-claim": page.groups_claim,
        # RBAC decides who sees what; whoever the issuer signs in may ask.
        "email-domain": "*",
        "http-address": f"0.0.0.0:{PROXY_PORT}",
        "upstream": f"http://127.0.0.1:{port}/",
        "pass-user-headers": "true",
        "pass-basic-auth": "false",
        "skip-auth-strip-headers": "true",
        "reverse-proxy": "true",
        "skip-provider-button": "true",
        "insecure-oidc-skip-nonce": "false",
        "code-challenge-method": "S256",
        "cookie-secure": "true",
        "cookie-samesite": "lax",
        "cookie-expire": "8h",
    }
    secrets = {"CLIENT_SECRET": "client-secret", "COOKIE_SECRET": "cookie-secret"}
    return manifests.container(
        _PROXY,
        page.proxy_image,
        [f"--{name}={value}" for name, value in flags.items()],
        env=[
            {
                "name": f"OAUTH2_PROXY_{name}",
                "valueFrom": {"secretKeyRef": {"name": page.secret_name, "key": key}},
            }
            for name, key in secrets.items()
        ],
        ports=[{"name": "http", "containerPort": PROXY_PORT}],
        readinessProbe={"httpGet": {"path": "/ready", "port": "http"}},
        livenessProbe={"httpGet": {"path": "/ping", "port": "http"}},
        resources=controllers.resources("50m", "128Mi"),
    )


def _service() -> Manifest:
    return manifest(
        "v1/Service",
        NAME,
        "operators",
        namespace=NAMESPACE,
        spec={
            "selector": manifests.selector(NAME),
            "ports": [{"name": "http", "port": 80, "targetPort": "http"}],
        },
    )


def _ingress(url: str, ingress: IngressConfig) -> Manifest:
    host = str(urlsplit(url).hostname)
    backend = {"service": {"name": NAME, "port": {"name": "http"}}}
    path = {"path": "/", "pathType": "Prefix", "backend": backend}
    return manifest(
        "networking.k8s.io/v1/Ingress",
        NAME,
        "operators",
        namespace=NAMESPACE,
        annotations=ingress.annotations,
        spec={
            "ingressClassName": ingress.class_name,
            "tls": [{"hosts": [host], "secretName": ingress.tls_secret_name}],
            "rules": [{"host": host, "http": {"paths": [path]}}],
        },
    )


def plan(
    page: RunPageConfig,
    teams: Sequence[str],
    *,
    prometheus: bool,
    replicas: int = controllers.REPLICAS,
    port: int = PORT,
) -> Installable:
    """Return the page, its proxy and their rights. `port`: of the page, on the pod's loopback."""
    containers = [
        page_container(page, teams, prometheus=prometheus, port=port),
        proxy_container(page, port),
    ]
    own = manifests.selector(NAME)
    return Installable(
        add_on="runPage",
        before=(
            isolation(NAME, NAMESPACE, called=(PROXY_PORT,), to_prometheus=prometheus),
            *manifests.access(NAME, NAMESPACE, EVERYWHERE, ()),
        ),
        objects=(
            manifests.deployment(
                NAME,
                NAMESPACE,
                containers,
                replicas=replicas,
                volumes=[{"name": "tmp", "emptyDir": {}}],
            ),
            controllers.disruption_budget(NAME, NAMESPACE, own),
            _service(),
            *([_ingress(page.url, page.ingress)] if page.ingress else []),
        ),
        namespace_labels=controllers.pod_security("restricted"),
    )


RUN_PAGE: Final = AddOn(
    name="runPage",
    section=Section.RUN_PAGE,
    version="7.13.0",
    app_version="7.13.0",
    namespace=NAMESPACE,
    images=(Image(registry="quay.io", repository="oauth2-proxy/oauth2-proxy", tag="v7.13.0"),),
    plan=plan,
)
