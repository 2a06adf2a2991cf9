"""Controllers that the platform needs, in the stack file."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from infra.config.types import Bool, Image, StrictModel

OPERATORS: Final = (
    *("kueue", "volcano", "yunikorn"),
    *("jobset", "kubeflowTrainer", "trainingOperator", "mpiOperator"),
    *("externalSecrets", "kubePrometheusStack", "fluentBit"),
    *("gpuOperator", "devicePlugin", "dcgmExporter", "efaDevicePlugin"),
)


class OperatorConfig(StrictModel):
    """A controller that the platform needs."""

    provided: Bool = Field(description="true when the cluster has it, false to install it")
    image: Image | None = None
    """By digest, of an operator that has no chart to name it: needed to install it."""


class OperatorsConfig(StrictModel):
    """Controllers by name; one that is not named is not there."""

    kueue: OperatorConfig | None = None
    volcano: OperatorConfig | None = None
    yunikorn: OperatorConfig | None = None
    """The one that `scheduler` names, and no other of these three."""
    jobset: OperatorConfig | None = None
    kubeflow_trainer: OperatorConfig | None = None
    training_operator: OperatorConfig | None = None
    mpi_operator: OperatorConfig | None = None
    external_secrets: OperatorConfig | None = None
    """Fetches secrets that teams keep in a store."""
    kube_prometheus_stack: OperatorConfig | None = None
    """Prometheus, Alertmanager and Grafana; see `observability`."""
    fluent_bit: OperatorConfig | None = None
    """Ships logs of runs; see `logs`."""
    gpu_operator: OperatorConfig | None = None
    device_plugin: OperatorConfig | None = None
    dcgm_exporter: OperatorConfig | None = None
    efa_device_plugin: OperatorConfig | None = None
