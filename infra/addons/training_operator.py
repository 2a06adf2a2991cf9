"""Training Operator v1: PyTorchJobs, for clusters whose people still write them.

Its makers' list brings five more kinds, one of which is MPI Operator's under an older version. Here it serves
PyTorchJobs only, so that both can be there.
"""

from __future__ import annotations

from typing import Any, Final

from infra.addons import controllers, manifests
from infra.addons.manifests import READ, WRITE, Kind, rule
from infra.addons.model import AddOn, ControllerImage, Image, Installable
from infra.domain import naming
from infra.kubernetes.objects import Manifest, metadata

NAME: Final = "training-operator"
"""Of its objects; the walls around teams know its service account by it."""

_CERTIFICATE: Final = "training-operator-webhook-cert"
"""Secret that the controller writes its certificate to."""
_WEBHOOK: Final = "validator.training-operator.kubeflow.org"
"""Configuration that it writes its CA to; the name is its own."""
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


def plan(image: ControllerImage) -> Installable:
    """The API, its controller twice, of which one leads, and what both of them answer: the webhook.

    `image`: the controller's, by digest like every image that a manifest of ours names.
    """
    kind = Kind(group=_GROUP, version=_VERSION, kind="PyTorchJob", plural="pytorchjobs")
    at_home = [manifests.LEADING, rule("", ["secrets"], [*READ, "update"])]
    return Installable(
        add_on="trainingOperator",
        before=(
            manifests.crd(kind),
            *manifests.access(NAME, _NAMESPACE, _EVERYWHERE, at_home),
            _certificate(),
            _no_init_container(),
        ),
        objects=(
            _service(),
            *manifests.deployment(NAME, _NAMESPACE, _container(image), _volumes()),
            _webhook(),
        ),
        namespace_labels=controllers.pod_security("restricted"),
    )


def _named(name: str) -> Manifest:
    return metadata(name, namespace=_NAMESPACE, labels=naming.object_labels("operators"))


def _certificate() -> Manifest:
    """Empty: the controller fills it, and renews what it wrote."""
    return {"apiVersion": "v1", "kind": "Secret", "metadata": _named(_CERTIFICATE)}


def _no_init_container() -> Manifest:
    """What each worker pod starts with: nothing.

    By default it is a container that looks the master's name up, as root, of an image by tag, which no team's
    namespace admits. torchrun waits for its rendezvous by itself.
    """
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _named(_WAITING),
        "data": {"initContainer.yaml": "[]\n"},
    }


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
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _named(NAME),
        "spec": {
            "selector": {"app.kubernetes.io/name": NAME},
            "ports": [{"name": "webhook", "port": 443, "targetPort": "webhook"}],
        },
    }


def _webhook() -> Manifest:
    """Refuses PyTorchJobs that the controller could not read; the controller adds its CA."""
    service = {
        "name": NAME,
        "namespace": _NAMESPACE,
        "path": f"/validate-kubeflow-org-{_VERSION}-pytorchjob",
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": metadata(_WEBHOOK, labels=naming.object_labels("operators")),
        "webhooks": [
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
    }


TRAINING_OPERATOR: Final = AddOn(
    name="trainingOperator",
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
    settings=ControllerImage,
    plan=plan,
)
