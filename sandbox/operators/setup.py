"""Command lines, configuration files and objects of the controllers in `OPERATORS`.

MPI Operator and Training Operator run with the CRDs and rights that a stack installs (`infra/addons`), so that a
missing right fails here, too. Kubeflow Trainer's come from a chart elsewhere and from its module here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from infra.addons import mpi_operator, training_operator
from infra.addons.model import ControllerImage, Installable
from infra.addons.registry import ADD_ONS
from infra.kubernetes.objects import Manifest
from sandbox import paths, service_config
from sandbox.operators import OPERATORS
from sandbox.operators.isolated import private_tmp
from sandbox.ports import LOOPBACK
from sandbox.services import CODE_ENV, ClusterSettings, Service, digest

Document = dict[str, Any]

_CERTIFICATES: Final = "/tmp/k8s-webhook-server/serving-certs"
"""Folder in which both of Kubeflow's controllers expect the certificate of their webhooks."""
_TRAINER_CONFIG: Final = "kubeflow-trainer.yaml"
_INIT_CONTAINERS: Final = "training-operator-init.yaml"
_APPLIED: Final = frozenset(
    {
        *("CustomResourceDefinition", "ServiceAccount", "Secret", "ConfigMap"),
        *("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
        *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
    }
)
"""Kinds of an add-on's objects that it also has here; its pods are processes."""


def operator_services(settings: ClusterSettings) -> list[Service]:
    """Return the services of the settings' operators."""
    found = [_SERVICES[name](settings) for name in settings.operators]
    return [*found, _requeue(settings)] if "mpiOperator" in settings.operators else found


def config_files(settings: ClusterSettings) -> dict[str, Any]:
    """Return configuration documents by file name."""
    found: dict[str, Any] = {}
    if "kubeflowTrainer" in settings.operators:
        found[_TRAINER_CONFIG] = _trainer_config(settings)
    if "trainingOperator" in settings.operators:
        found[_INIT_CONTAINERS] = []  # as the add-on's ConfigMap says
    return found


def operator_objects(settings: ClusterSettings) -> list[Document]:
    """Return namespaces, CRDs, rights and webhooks of the settings' operators."""
    return [one for name in settings.operators for one in _objects(settings, name)]


def _objects(settings: ClusterSettings, name: str) -> Iterator[Document]:
    namespace = ADD_ONS[name].namespace
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    if name == "kubeflowTrainer":
        folder = settings.tools.assets[OPERATORS[name].tool] / "manifests" / "base"
        for path in sorted((folder / "crds").glob("trainer.*.yaml")):
            yield from service_config.documents(path)
        for document in service_config.documents(folder / "webhook" / "manifests.yaml"):
            yield _with_loopback_url(settings, name, document)
        return
    plan = _PLANS[name]()
    for manifest in [*plan.before, *plan.objects]:
        if manifest["kind"] in _APPLIED:
            yield manifest
        elif manifest["kind"] == "ValidatingWebhookConfiguration":
            yield _with_loopback_url(settings, name, manifest)


def _with_loopback_url(settings: ClusterSettings, name: str, manifest: Manifest) -> Document:
    service = OPERATORS[name].service
    return service_config.with_loopback_urls(
        manifest, service, settings.ports[f"{service}-webhook"], settings.ca
    )


_NO_IMAGE: Final = ControllerImage("-")
_PLANS: Final[Mapping[str, Callable[[], Installable]]] = {
    "mpiOperator": lambda: mpi_operator.plan(
        mpi_operator.MpiOperatorArgs(image=_NO_IMAGE, trainer=_NO_IMAGE)
    ),
    "trainingOperator": lambda: training_operator.plan(_NO_IMAGE),
}


def _trainer_config(settings: ClusterSettings) -> Document:
    ports = settings.ports
    return {
        "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"{LOOPBACK}:{ports['kubeflow-trainer-health']}"},
        "metrics": {
            "bindAddress": f"{LOOPBACK}:{ports['kubeflow-trainer-metrics']}",
            "secureServing": False,
        },
        "webhook": {"host": LOOPBACK, "port": ports["kubeflow-trainer-webhook"]},
        "leaderElection": {"leaderElect": False},
        "certManagement": {"enable": False},
        "clientConnection": {"qps": 500, "burst": 1000},
    }


def _trainer(settings: ClusterSettings) -> Service:
    config = settings.config(_TRAINER_CONFIG)
    binary = settings.binary("trainer-controller-manager")
    argv = [
        *private_tmp([f"{settings.config('webhook')}={_CERTIFICATES}"], _visible(settings, binary)),
        *("--", binary, f"--config={config}"),
    ]
    return Service(
        "kubeflow-trainer",
        argv,
        settings.http("kubeflow-trainer-health", "/readyz"),
        _environment(settings, "kubeflow-trainer", config),
    )


def _training_operator(settings: ClusterSettings) -> Service:
    argv = [
        settings.binary("training-operator"),
        "--enable-scheme=pytorchjob",
        "--metrics-bind-address=0",
        f"--pytorch-init-container-template-file={settings.config(_INIT_CONTAINERS)}",
        *("--kube-api-qps=500", "--kube-api-burst=1000"),
    ]
    publish = {"training-operator-health": 8081, "training-operator-webhook": 9443}
    return Service(
        "training-operator",
        [*_isolated(settings, "training-operator", publish), *argv],
        settings.http("training-operator-health", "/readyz"),
        _environment(settings, "training-operator", settings.config(_INIT_CONTAINERS))
        | {"MY_POD_NAMESPACE": ADD_ONS["trainingOperator"].namespace},
    )


def _mpi_operator(settings: ClusterSettings) -> Service:
    argv = [
        settings.binary("mpi-operator"),
        f"--lock-namespace={ADD_ONS['mpiOperator'].namespace}",
        *("--kube-api-qps=500", "--kube-api-burst=1000"),
    ]
    return Service(
        "mpi-operator",
        [*_isolated(settings, "mpi-operator", {"mpi-operator-health": 8080}), *argv],
        settings.http("mpi-operator-health", "/healthz"),
        _environment(settings, "mpi-operator"),
    )


def _requeue(settings: ClusterSettings) -> Service:
    name, pair = mpi_operator.REQUEUE, settings.pairs[mpi_operator.REQUEUE]
    argv = [
        *(sys.executable, "-m", "training.requeue"),
        *(
            "--server",
            f"https://{LOOPBACK}:{settings.ports['apiserver']}",
            "--ca",
            str(settings.ca),
        ),
        *("--certificate", str(pair.certificate), "--key", str(pair.key)),
    ]
    files = [pair.certificate, paths.PROJECT / "training" / "requeue.py"]
    env = {"PYTHONPATH": str(paths.PROJECT), CODE_ENV: digest(files)}
    # It serves nothing; what it depends on is the API server.
    return Service(name, argv, settings.https("apiserver", "/readyz", name), env)


_SERVICES: Final[Mapping[str, Callable[[ClusterSettings], Service]]] = {
    "kubeflowTrainer": _trainer,
    "trainingOperator": _training_operator,
    "mpiOperator": _mpi_operator,
}


def _isolated(settings: ClusterSettings, service: str, publish: Mapping[str, int]) -> list[str]:
    argv = [sys.executable, "-m", "sandbox.operators.isolated"]
    argv.append(f"--sockets={settings.state.home / 'sockets' / service}")
    argv.append(f"--bind={settings.config('webhook')}={_CERTIFICATES}")
    argv.append(f"--visible={settings.state.home}")
    argv += [f"--publish={settings.ports[port]}={inner}" for port, inner in publish.items()]
    return [*argv, f"--reach={settings.ports['apiserver']}", "--"]


def _visible(settings: ClusterSettings, binary: str) -> list[Path]:
    return [settings.state.home, Path(binary)]


def _environment(settings: ClusterSettings, identity: str, *files: str) -> dict[str, str]:
    code = sorted((paths.PROJECT / "sandbox" / "operators").glob("*.py"))
    read = [Path(settings.kubeconfig(identity)), *map(Path, files), *code]
    return {
        "KUBECONFIG": settings.kubeconfig(identity),
        "PYTHONPATH": str(paths.PROJECT),
        CODE_ENV: digest(read),
    }
