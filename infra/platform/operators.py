"""Controllers that the platform needs and the cluster may lack: pinned Helm releases.

A cluster that has one (the sandbox runs Kueue and JobSet itself) says `provided: true`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pulumi
import pulumi_kubernetes as k8s
import yaml

from infra import naming
from infra.objects import KubernetesObject, metadata
from infra.platform import kueue_settings
from infra.platform.schedulers import volcano, yunikorn
from infra.platform.signatures import Signatures, SignaturesArgs, Signer
from infra.schedulers import UNSUITED, Scheduler


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One operator's chart."""

    chart: str
    version: str
    namespace: str
    values: Mapping[str, Any]
    repository: str = ""
    """URL of an index of charts; empty: `chart` is an OCI reference."""


CHARTS: Final[Mapping[str, Chart]] = {
    "kueue": Chart(
        chart="oci://registry.k8s.io/kueue/charts/kueue",
        version="0.20.3",
        namespace="kueue-system",
        values={
            "managerConfig": {
                # The chart wants it as text.
                "controllerManagerConfigYaml": yaml.safe_dump(
                    kueue_settings.of_chart(), sort_keys=False
                )
            }
        },
    ),
    "volcano": Chart(
        chart="volcano",
        version="1.15.1",
        namespace="volcano-system",
        values={"custom": {"scheduler_config_override": volcano.SCHEDULER_CONFIG}},
        repository="https://volcano-sh.github.io/helm-charts",
    ),
    "yunikorn": Chart(
        chart="yunikorn",
        version="1.9.0",
        namespace=yunikorn.NAMESPACE,
        # Its webhook would hand every pod of the cluster to YuniKorn; runs name it themselves.
        values={"embedAdmissionController": False, "service": {"type": "ClusterIP"}},
        repository="https://apache.github.io/yunikorn-release",
    ),
    "jobset": Chart(
        chart="oci://registry.k8s.io/jobset/charts/jobset",
        version="0.12.0",
        namespace="jobset-system",
        values={},
    ),
    "kubeflowTrainer": Chart(
        chart="oci://ghcr.io/kubeflow/charts/kubeflow-trainer",
        version="2.3.0",
        namespace="kubeflow-system",
        # JobSet is a release of its own; two would fight over its CRDs.
        values={"jobset": {"install": False}},
    ),
    "externalSecrets": Chart(
        chart="oci://ghcr.io/external-secrets/charts/external-secrets",
        version="2.13.0",
        namespace=naming.EXTERNAL_SECRETS,
        # On AWS the controller's role is handed to this account.
        values={"serviceAccount": {"name": naming.EXTERNAL_SECRETS}},
    ),
}
"""Operators that can be installed; the others must be provided."""

NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "job": (),
    "indexed-job": (),
    "jobset": ("jobset",),
    "trainjob": ("jobset", "kubeflowTrainer"),
    "pytorchjob": ("trainingOperator",),
    "mpijob": ("mpiOperator",),
}
"""Operators that each launcher's objects need, beside the scheduler."""


def launchers(present: frozenset[str], scheduler: Scheduler) -> frozenset[str]:
    """Launchers that a cluster with these operators can run, and this scheduler hold together."""
    unsuited = UNSUITED.get(scheduler, {})
    return frozenset(
        name for name, needs in NEEDS.items() if present.issuperset(needs) and name not in unsuited
    )


@dataclass(frozen=True, kw_only=True)
class OperatorsArgs:
    """Names from CHARTS of the operators to install, in order of installation."""

    install: tuple[str, ...]
    signer: Signer | None = None
    """Who signs images; None: they need no signature."""

    @property
    def anything(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.install or self.signer)


def _repository(chart: Chart) -> k8s.helm.v3.RepositoryOptsArgs | None:
    return k8s.helm.v3.RepositoryOptsArgs(repo=chart.repository) if chart.repository else None


class Operators(pulumi.ComponentResource):
    """Releases of the operators that are not provided, one after the other."""

    def __init__(self, name: str, args: OperatorsArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("Operators"), name, None, opts)
        self.releases: list[pulumi.Resource] = []
        for operator in args.install:
            chart = CHARTS[operator]
            namespace = KubernetesObject(
                f"{name}-{operator}-namespace",
                {
                    "apiVersion": "v1",
                    "kind": "Namespace",
                    "metadata": metadata(chart.namespace, labels=naming.object_labels("operators")),
                },
                pulumi.ResourceOptions(parent=self),
            )
            release = k8s.helm.v3.Release(
                f"{name}-{operator}",
                name=operator.lower(),
                chart=chart.chart,
                version=chart.version,
                namespace=chart.namespace,
                repository_opts=_repository(chart),
                values=dict(chart.values),
                atomic=True,
                timeout=600,
                opts=pulumi.ResourceOptions(parent=self, depends_on=[namespace, *self.releases]),
            )
            self.releases.append(release)
        if args.signer:
            last = pulumi.ResourceOptions(parent=self, depends_on=list(self.releases))
            Signatures(f"{name}-signatures", SignaturesArgs(signer=args.signer), last)
        self.register_outputs({"installed": list(args.install)})
