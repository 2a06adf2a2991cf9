"""Launchers and the Kubernetes objects that they create: one table, from which everything else derives.

RBAC, admission policies, Kueue's frameworks and `ops` follow from the kinds; which launchers a stack offers
follows from the operators. How a launcher renders a run is in training/launchers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from infra.domain import naming


def account(namespace: str, name: str) -> str:
    return f"system:serviceaccount:{namespace}:{name}"


@dataclass(frozen=True, kw_only=True)
class RunKind:
    """A kind of object that is a run: a queue can hold it back, and its controller creates the pods."""

    kind: str
    group: str
    version: str
    resource: str
    controllers: tuple[str, ...]
    """Users that its controller can be, by upstream's chart and manifests."""
    creates: tuple[str, ...]
    """Kinds that its controller creates for it: `Pod`, or kinds of this table."""
    replica_specs: str = ""
    """Field of `spec` with a pod template by replica type; empty: see `replicated_jobs` and `runtime`."""
    replicated_jobs: bool = False
    """Whether its pod templates are those of `spec.replicatedJobs`."""
    runtime: tuple[str, str] | None = None
    """Kind and resource of the object that has its `replicatedJobs`, which it refers to."""
    writes_specs: bool = True
    """Whether its controller changes the specs of what it creates, to start, stop and place it."""

    @property
    def api_version(self) -> str:
        """`apiVersion` of its objects."""
        return f"{self.group}/{self.version}"

    @property
    def framework(self) -> str:
        return f"{self.group}/{self.kind.lower()}"

    @property
    def header(self) -> dict[str, str]:
        """`apiVersion` and `kind` of an object."""
        return {"apiVersion": self.api_version, "kind": self.kind}


JOB: Final = RunKind(
    kind="Job",
    group="batch",
    version="v1",
    resource="jobs",
    controllers=(account("kube-system", "job-controller"),),
    creates=("Pod",),
    writes_specs=False,
)
JOBSET: Final = RunKind(
    kind="JobSet",
    group="jobset.x-k8s.io",
    version="v1alpha2",
    resource="jobsets",
    controllers=(
        account(naming.JOBSET_NAMESPACE, "jobset-controller-manager"),  # manifests
        account(naming.JOBSET_NAMESPACE, "jobset-controller"),  # chart
    ),
    creates=("Job",),
    replicated_jobs=True,
)
TRAIN_JOB: Final = RunKind(
    kind="TrainJob",
    group="trainer.kubeflow.org",
    version="v1alpha1",
    resource="trainjobs",
    controllers=(
        account("kubeflow-system", "kubeflow-trainer-controller-manager"),  # manifests
        # Chart, with the name of this project's release.
        account("kubeflow-system", "kubeflowtrainer-kubeflow-trainer-controller-manager"),
    ),
    creates=("JobSet",),
    runtime=("TrainingRuntime", "trainingruntimes"),
)
PYTORCH_JOB: Final = RunKind(
    kind="PyTorchJob",
    group="kubeflow.org",
    version="v1",
    resource="pytorchjobs",
    controllers=(account("kubeflow", "training-operator"),),
    creates=("Pod",),
    replica_specs="pytorchReplicaSpecs",
    writes_specs=False,
)
MPI_JOB: Final = RunKind(
    kind="MPIJob",
    group="kubeflow.org",
    version="v2beta1",
    resource="mpijobs",
    controllers=(account("mpi-operator", "mpi-operator"),),
    creates=("Pod", "Job"),
    replica_specs="mpiReplicaSpecs",
)

KINDS: Final = (JOB, JOBSET, TRAIN_JOB, PYTORCH_JOB, MPI_JOB)
"""Every kind of run."""


@dataclass(frozen=True, kw_only=True)
class Support:
    kind: RunKind
    operators: tuple[str, ...] = ()
    """Add-ons that its objects need, besides the scheduler."""
    single_node: bool = False
    """Whether it runs on one node only."""
    groups: bool = False
    """Whether a run may consist of replica groups: each restarts as a whole, by the cause of its end."""
    torchrun: bool = True
    """Whether torchrun starts the ranks, in each pod; False: mpirun does, from a pod of its own."""


LAUNCHERS: Final[Mapping[str, Support]] = {
    "job": Support(kind=JOB, single_node=True),
    "indexed-job": Support(kind=JOB),
    "jobset": Support(kind=JOBSET, operators=("jobset",), groups=True),
    "trainjob": Support(kind=TRAIN_JOB, operators=("jobset", "kubeflowTrainer")),
    "pytorchjob": Support(kind=PYTORCH_JOB, operators=("trainingOperator",)),
    "mpijob": Support(kind=MPI_JOB, operators=("mpiOperator",), torchrun=False),
}
"""By the name that run files use."""


def launchers(present: frozenset[str], unsupported: Collection[str]) -> frozenset[str]:
    """Return the launchers that these operators run, less those that the scheduler does not support."""
    return frozenset(
        name
        for name, support in LAUNCHERS.items()
        if present.issuperset(support.operators) and name not in unsupported
    )


def resources_by_group(*, runtimes: bool = False) -> dict[str, list[str]]:
    """Return the resources of all kinds by API group, with those of their runtimes if asked for."""
    found: dict[str, list[str]] = {}
    for one in KINDS:
        found.setdefault(one.group, []).append(one.resource)
        if runtimes and one.runtime:
            found[one.group].append(one.runtime[1])
    return found
