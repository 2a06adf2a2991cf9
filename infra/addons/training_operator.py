"""Training Operator v1: PyTorchJobs, for clusters that still use them.

Upstream's manifests serve five more kinds, one of which is MPI Operator's in an older version. Here it serves
PyTorchJobs only, so that both can be installed.
"""

from __future__ import annotations

from typing import Any, Final

from infra.addons import controllers, manifests
from infra.addons.isolation import isolation
from infra.addons.manifests import READ, WRITE, rule
from infra.addons.model import AddOn, Image, Installable
from infra.domain import naming
from infra.kubernetes.crds import crd
from infra.kubernetes.objects import Manifest, manifest

NAME: Final = "training-operator"
"""Name of its objects; admission policies identify its service account by it."""

CRD: Final = "pytorchjobs.kubeflow.org"

_CERTIFICATE: Final = "training-operator-webhook-cert"
"""Secret into which the controller writes its certificate."""
_WEBHOOK: Final = "validator.training-operator.kubeflow.org"
"""Webhook configuration into which it writes its CA; the name is fixed upstream."""
_WAITING: Final = "training-operator-init-container"
_GROUP: Final = "kubeflow.org"
_VERSION: Final = "v1"
_NAMESPACE: Final = "kubeflow"

_EVERYWHERE: Final = (
    rule("kubeflow.org", ["pytorchjobs"], WRITE),
    rule("kubeflow.org", ["pytorchjobs/status"], ["get", "patch", "update"]),
    rule("kubeflow.org", ["pytorchjobs/finalizers"], ["update"]),
    rule("", ["pods"], WRITE),
    rule("", ["services"], [*READ, "create", "delete"]),
    rule("", ["events"], ["create", "patch", "update"]),
    rule("autoscaling", ["horizontalpodautoscalers"], WRITE),
    rule("admissionregistration.k8s.io", ["validatingwebhookconfigurations"], [*READ, "update"]),
)


def plan(image: str) -> Installable:
    """Return the CRD, two controllers, one leading, their rights, and the webhook that both serve.

    `image`: the controller's, by digest.
    """
    at_home = [manifests.LEADING, rule("", ["secrets"], [*READ, "update"])]
    return Installable(
        add_on="trainingOperator",
        before=(
            isolation(NAME, _NAMESPACE, called=(9443,), metrics=(8080,)),
            crd(CRD, naming.object_labels("operators")),
            *manifests.access(NAME, _NAMESPACE, _EVERYWHERE, at_home),
            _certificate(),
            _no_init_container(),
        ),
        objects=(
            _service(),
            *manifests.operator(NAME, _NAMESPACE, _container(image), _volumes()),
            _webhook(),
        ),
        namespace_labels=controllers.pod_security("restricted"),
    )


def _here(kind: str, name: str, **parts: Any) -> Manifest:
    return manifest(kind, name, "operators", namespace=_NAMESPACE, **parts)


def _certificate() -> Manifest:
    """Return an empty Secret, which the controller fills and renews."""
    return _here("v1/Secret", _CERTIFICATE)


def _no_init_container() -> Manifest:
    """Return an empty template for init containers of worker pods.

    By default one resolves the master's name, as root and with an image by tag, which teams' namespaces reject.
    torchrun waits for its rendezvous itself.
    """
    return _here("v1/ConfigMap", _WAITING, data={"initContainer.yaml": "[]\n"})


def _container(image: str) -> dict[str, Any]:
    probe = {"periodSeconds": 15, "timeoutSeconds": 3}
    return {
        "image": image,
        "command": ["/manager"],
        "args": ["--leader-elect", "--enable-scheme=pytorchjob"],
        "env": [
            {
                "name": "MY_POD_NAMESPACE",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}},
            }
        ],
        "ports": [
            {"name": "metrics", "containerPort": 8080},
            {"name": "health", "containerPort": 8081},
            {"name": "webhook", "containerPort": 9443},
        ],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "health"}, **probe},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "health"}, **probe},
        "resources": controllers.resources("100m", "256Mi"),
        "volumeMounts": [
            {
                "name": "certificate",
                "mountPath": "/tmp/k8s-webhook-server/serving-certs",
                "readOnly": True,
            },
            {"name": "init-container", "mountPath": "/etc/config", "readOnly": True},
        ],
    }


def _volumes() -> list[dict[str, Any]]:
    return [
        {"name": "certificate", "secret": {"secretName": _CERTIFICATE}},
        {"name": "init-container", "configMap": {"name": _WAITING}},
    ]


def _service() -> Manifest:
    return _here(
        "v1/Service",
        NAME,
        spec={
            "selector": {"app.kubernetes.io/name": NAME},
            "ports": [{"name": "webhook", "port": 443, "targetPort": "webhook"}],
        },
    )


def _webhook() -> Manifest:
    """Return the webhook, which rejects invalid PyTorchJobs; the controller adds its CA."""
    service = {
        "name": NAME,
        "namespace": _NAMESPACE,
        "path": f"/validate-kubeflow-org-{_VERSION}-pytorchjob",
    }
    return manifest(
        "admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration",
        _WEBHOOK,
        "operators",
        webhooks=[
            {
                "name": "validator.pytorchjob.training-operator.kubeflow.org",
                "admissionReviewVersions": ["v1"],
                "clientConfig": {"service": service},
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "rules": [
                    {
                        "apiGroups": [_GROUP],
                        "apiVersions": [_VERSION],
                        "operations": ["CREATE", "UPDATE"],
                        "resources": ["pytorchjobs"],
                    }
                ],
            }
        ],
    )


TRAINING_OPERATOR: Final = AddOn(
    name="trainingOperator",
    summary="Launcher `pytorchjob`.",
    version="1.9.3",
    app_version="v1.9.3",
    namespace=_NAMESPACE,
    kubernetes=("1.28", ""),
    apis={"PyTorchJob": f"{_GROUP}/{_VERSION}"},
    # Its releases tag images by commit; this is the one that 1.9.3 names.
    images=(
        Image(
            registry="ghcr.io",
            repository="kubeflow/training-v1/training-operator",
            tag="v1-d6eb98e",
        ),
    ),
    toolchain="1.9.3",
    plan=plan,
)
