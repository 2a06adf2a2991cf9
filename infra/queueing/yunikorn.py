"""YuniKorn: a tree of queues in the ConfigMap that its scheduler watches."""

from __future__ import annotations

from typing import Any, Final

import pulumi
import yaml

from infra.domain import naming
from infra.domain.scheduler import Scheduler
from infra.kubernetes import controller_accounts, pod_templates
from infra.kubernetes.admission_policy import Rule, policy, resources, text
from infra.kubernetes.objects import Manifest, manifest
from infra.kubernetes.resources import KubernetesObject
from infra.queueing import shares
from infra.queueing.admission import require_scheduler
from infra.queueing.backends import SchedulerBackend, TeamQueues
from infra.queueing.quotas import Amounts, QueuesArgs
from infra.sections.teams import TeamConfig

NAMESPACE: Final = "yunikorn"
_CONFIG: Final = "yunikorn-configs"
"""The name that YuniKorn watches; it overrides the chart's defaults."""

PLACEHOLDER: Final = (
    "registry.k8s.io/pause@sha256:ee6521f290b2168b6e0935a181d4cff9be1ac3f505666ef0e3c98fae8199917a"
)
"""Image of YuniKorn's placeholder pods: pause 3.10, by digest like every image of a team's pods."""

QUEUE_LABEL: Final = "yunikorn.apache.org/queue"
"""Pod label that names the queue; YuniKorn reads it before any other way to name one."""


def _resources(amounts: Amounts) -> dict[str, str]:
    """Return quantities with YuniKorn's name for CPU, vcore."""
    found = shares.quantities(amounts)
    return {"vcore" if name == "cpu" else name: found[name] for name in sorted(found)}


def _leaf(team: TeamConfig, args: QueuesArgs) -> dict[str, Any]:
    """Return a team's queue. Gangs need `fifo`: any other order reserves parts of several at once."""
    return {
        "name": team.name,
        "properties": {"application.sort.policy": "fifo"},
        "resources": {
            "guaranteed": _resources(shares.guaranteed(team, args)),
            "max": _resources(shares.most(team, args)),
        },
    }


def queues(args: QueuesArgs) -> dict[str, Any]:
    """Return `queues.yaml`: root, the cohort, a leaf per team. Pods are placed in the queue that they name.

    No limits per user: the stack deploys runs and controllers create their pods, so YuniKorn never sees the
    user. `submitacl` is open for the same reason; an admission policy keeps teams in their own queues.
    """
    cohort = {
        "name": args.cohort,
        "parent": True,
        "resources": {"max": _resources(shares.everything(args))},
        "queues": [_leaf(team, args) for team in args.teams],
    }
    return {
        "partitions": [
            {
                "name": "default",
                "placementrules": [{"name": "provided", "create": False}],
                "queues": [{"name": "root", "submitacl": "*", "queues": [cohort]}],
            }
        ]
    }


def config_map(args: QueuesArgs) -> Manifest:
    """Return the ConfigMap; YuniKorn applies changes without a restart."""
    return manifest(
        "v1/ConfigMap",
        _CONFIG,
        "queues",
        namespace=NAMESPACE,
        data={
            "queues.yaml": yaml.safe_dump(queues(args), sort_keys=False, width=100),
            "service.placeHolderImage": args.placeholder,
        },
    )


def require_own_queue(prefix: str, taint_key: str) -> Manifest:
    """Require the queue label of GPU pods, which YuniKorn reads first, to name `prefix` and the team."""
    return policy(
        "queue-name",
        matches=[resources("", "pods")],
        conditions={
            "queues": (
                "request.operation == 'CREATE' || object.metadata.?labels.orValue({}) != "
                "oldObject.metadata.?labels.orValue({})"
            ),
        },
        variables={
            **pod_templates.TEAM,
            **pod_templates.PODS,
            **pod_templates.on_gpu_nodes(taint_key),
        },
        rules=[
            Rule(
                holds=(
                    f"!variables.gpu || {pod_templates.label(QUEUE_LABEL)} == "
                    f"{text(prefix)} + variables.team"
                ),
                message=(
                    f"this is not the team's queue; GPU pods must name {prefix}TEAM; "
                    f"set the label {QUEUE_LABEL}"
                ),
            )
        ],
    )


class YunikornQueues(pulumi.ComponentResource):
    def __init__(self, name: str, args: QueuesArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("YunikornQueues"), name, None, opts)
        KubernetesObject(f"{name}-config", config_map(args), pulumi.ResourceOptions(parent=self))
        self.register_outputs({"cohort": args.cohort})


class YunikornBackend(SchedulerBackend):
    """YuniKorn: placeholder pods and hierarchical queues."""

    scheduler = Scheduler.YUNIKORN
    operator = "yunikorn"
    pod_scheduler = "yunikorn"
    # YuniKorn takes lent nodes back only for pods whose class lets them preempt.
    preemption_policy = "PreemptLowerPriority"
    binders = (controller_accounts.KUBE_SCHEDULER, *controller_accounts.YUNIKORN)
    placeholder_image = PLACEHOLDER

    def queue(self, team: str, cohort: str) -> str:
        return f"root.{cohort}.{team}"

    def deploy(self, name: str, args: QueuesArgs, opts: pulumi.ResourceOptions) -> TeamQueues:
        return TeamQueues(named_by_runs=(YunikornQueues(name, args, opts),))

    def admission_policies(self, taint_key: str, cohort: str) -> list[Manifest]:
        return [
            require_scheduler(taint_key, self.pod_scheduler),
            require_own_queue(self.queue("", cohort), taint_key),
        ]


BACKEND: Final = YunikornBackend()
