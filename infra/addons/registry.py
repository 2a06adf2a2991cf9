"""All add-ons. Every other table of add-ons is derived from this one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from infra.addons.cluster_autoscaler import CLUSTER_AUTOSCALER
from infra.addons.cost_control import COST_CONTROL
from infra.addons.dcgm_exporter import DCGM_EXPORTER
from infra.addons.device_plugin import DEVICE_PLUGIN
from infra.addons.efa_device_plugin import EFA_DEVICE_PLUGIN
from infra.addons.elastic_runs import ELASTIC_RUNS
from infra.addons.external_secrets import EXTERNAL_SECRETS
from infra.addons.fluent_bit import FLUENT_BIT
from infra.addons.gpu_operator import GPU_OPERATOR
from infra.addons.jobset import JOBSET
from infra.addons.karpenter import KARPENTER, KARPENTER_CRD
from infra.addons.kube_prometheus_stack import KUBE_PROMETHEUS_STACK
from infra.addons.kueue import KUEUE
from infra.addons.model import AddOn, ChartSource, Section
from infra.addons.mpi_operator import MPI_OPERATOR
from infra.addons.node_monitoring_agent import NODE_MONITORING_AGENT
from infra.addons.policy_controller import POLICY_CONTROLLER
from infra.addons.run_page import RUN_PAGE
from infra.addons.steering import STEERING
from infra.addons.trainer import KUBEFLOW_TRAINER
from infra.addons.training_operator import TRAINING_OPERATOR
from infra.addons.volcano import VOLCANO
from infra.addons.yunikorn import YUNIKORN

_ALL: Final = (
    *(KUEUE, VOLCANO, YUNIKORN),
    *(JOBSET, KUBEFLOW_TRAINER, TRAINING_OPERATOR, MPI_OPERATOR),
    *(EXTERNAL_SECRETS, KUBE_PROMETHEUS_STACK, FLUENT_BIT),
    *(GPU_OPERATOR, DEVICE_PLUGIN, DCGM_EXPORTER, EFA_DEVICE_PLUGIN),
    *(POLICY_CONTROLLER, KARPENTER, KARPENTER_CRD, CLUSTER_AUTOSCALER, NODE_MONITORING_AGENT),
    *(RUN_PAGE, COST_CONTROL, STEERING, ELASTIC_RUNS),
)

ADD_ONS: Final[Mapping[str, AddOn]] = {add_on.name: add_on for add_on in _ALL}
"""By name."""

OPERATORS: Final = tuple(add_on.name for add_on in _ALL if add_on.section is Section.OPERATORS)
"""Keys of the stack file's `operators`."""

CHART_SOURCES: Final[Mapping[str, ChartSource]] = {
    add_on.name: add_on.chart_source for add_on in _ALL if add_on.chart_source
}
"""Charts whose values are known here. The others are pinned, but their values are checked manually."""
