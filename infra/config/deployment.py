"""The platform's components in their order, for the stack's program and for the component package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pulumi
import pulumi_kubernetes as k8s

from infra.addons.component import AddOns
from infra.config import add_ons, arguments
from infra.config.model import StackConfig
from infra.domain.cluster_target import ClusterTarget
from infra.domain.platform import Platform
from infra.observability.component import Observability
from infra.queueing.backends import TeamQueues, backend
from infra.queueing.priorities import Priorities
from infra.sites.simulated.node_pools import SimulatedNodePools
from infra.sites.simulated.storage import SimulatedStorage
from infra.tenancy.admission.component import AdmissionPolicies
from infra.tenancy.shared_view import SharedView
from infra.validation.component import Validation


@dataclass(frozen=True, kw_only=True)
class Owner:
    """What the resources belong to: a component, whose name begins theirs, or the stack."""

    parent: pulumi.Resource | None = None
    prefix: str = ""


STACK: Final = Owner()


@dataclass(frozen=True, kw_only=True)
class Deployed:
    queues: TeamQueues
    before_teams: list[pulumi.Resource]


def provision_aws(config: StackConfig, stack: str, owner: Owner = STACK) -> ClusterTarget | None:
    """Create the stack's own cluster on AWS; None where it uses an existing one."""
    if config.on_aws is None:
        return None
    # Importing pulumi_aws takes seconds; other stacks do not need it.
    from infra.config import aws_arguments
    from infra.sites.aws import stack as aws_stack

    args = aws_arguments.foundation(config, config.on_aws, stack)
    return aws_stack.deploy(f"{owner.prefix}aws", args, owner.parent)


def attach_existing(
    config: StackConfig, owner: Owner = STACK, kubeconfig: pulumi.Input[str] | None = None
) -> ClusterTarget:
    """Use an existing cluster, with simulated nodes and storage where configured.

    `kubeconfig`: path or content. Default: the path in the stack file.
    """
    reached = arguments.existing_cluster(config)
    if kubeconfig is not None:
        reached.kubeconfig = kubeconfig
    own = pulumi.ResourceOptions(parent=owner.parent)
    on = k8s.Provider(f"{owner.prefix}cluster", reached, own)
    opts = pulumi.ResourceOptions(parent=owner.parent, provider=on)
    ready: list[pulumi.Resource] = []
    if simulated_pools := [pool for pool in config.pools if pool.nodes.simulated]:
        ready.append(SimulatedNodePools(f"{owner.prefix}nodes", simulated_pools, opts))
    if named := config.storage.named_class:
        return ClusterTarget(kubernetes=on, ready=ready, storage=named)
    simulated = SimulatedStorage(f"{owner.prefix}storage", config.storage.sizes, opts)
    return ClusterTarget(kubernetes=on, ready=[*ready, simulated], storage=simulated)


def deploy_platform(
    config: StackConfig,
    platform: Platform,
    images: Mapping[str, str],
    site: ClusterTarget,
    owner: Owner = STACK,
) -> Deployed:
    """Deploy add-ons, queues and admission policies. `images`: the stack's by name, by digest."""

    def after(*needs: pulumi.Resource) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(
            parent=owner.parent, provider=site.kubernetes, depends_on=list(needs)
        )

    prefix, base = owner.prefix, list(site.ready)
    if (operators := add_ons.args(config)).plans:
        base.append(AddOns(f"{prefix}operators", operators, after(*base)))
    if watched := arguments.observability(config):
        Observability(f"{prefix}observability", watched, after(*base))
    SharedView(f"{prefix}shared-view", config.teams, after(*base))
    scheduler = backend(config.scheduler)
    priorities = Priorities(f"{prefix}priorities", scheduler, after(*base))
    policies = AdmissionPolicies(f"{prefix}admission", arguments.admission(config), after(*base))
    queues = scheduler.deploy(f"{prefix}queues", arguments.queues(config), after(*base))
    if checks := arguments.validation(config, platform, images):
        queued = [*base, priorities, *queues.cluster_queues.values()]
        Validation(f"{prefix}validation", checks, after(*queued))
    return Deployed(queues=queues, before_teams=[*base, policies, priorities])
