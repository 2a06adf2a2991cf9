"""Compose a stack: its platform, its teams and its runs. Nothing else is decided here."""

from pathlib import Path

import pulumi
import pulumi_kubernetes as k8s

from infra.addons.component import AddOns
from infra.config import ConfigError, StackConfig, add_ons, arguments, engine_values, placeholders
from infra.domain.cluster_target import ClusterTarget
from infra.observability.component import Observability
from infra.queueing.backends import backend
from infra.queueing.priorities import Priorities
from infra.sites.simulated.node_pools import SimulatedNodePools
from infra.sites.simulated.storage import SimulatedStorage
from infra.tenancy.admission.component import AdmissionPolicies
from infra.tenancy.shared_view import SharedView
from infra.tenancy.team import Team
from infra.validation.component import Validation
from ops.reachability import warn_if_unreachable
from training import plan, runs

ROOT = Path(__file__).resolve().parent


def provision_aws(config: StackConfig) -> ClusterTarget | None:
    """Create the stack's own cluster on AWS; None where it uses an existing one."""
    if config.on_aws is None:
        return None
    # Importing pulumi_aws takes seconds; other stacks do not need it.
    from infra.config import aws_arguments
    from infra.sites.aws import stack

    return stack.deploy("aws", aws_arguments.foundation(config, config.on_aws, pulumi.get_stack()))


def attach_existing(config: StackConfig) -> ClusterTarget:
    """Use an existing cluster, with simulated nodes and storage where configured."""
    on = k8s.Provider("cluster", arguments.existing_cluster(config))
    opts = pulumi.ResourceOptions(provider=on)
    ready: list[pulumi.Resource] = []
    if simulated_pools := [pool for pool in config.pools if pool.nodes.simulated]:
        ready.append(SimulatedNodePools("nodes", simulated_pools, opts))
    if named := config.storage.named_class:
        return ClusterTarget(kubernetes=on, ready=ready, storage=named)
    simulated = SimulatedStorage("storage", config.storage.sizes, opts)
    return ClusterTarget(kubernetes=on, ready=[*ready, simulated], storage=simulated)


def deploy_platform(planned: plan.Plan, site: ClusterTarget) -> dict[str, list[pulumi.Resource]]:
    """Deploy add-ons, queues and teams; return by team what its runs depend on."""
    config = planned.config
    base = list(site.ready)
    if (operators := add_ons.args(config)).plans:
        first = pulumi.ResourceOptions(provider=site.kubernetes, depends_on=base)
        base = [*base, AddOns("operators", operators, first)]
    after = pulumi.ResourceOptions(provider=site.kubernetes, depends_on=base)
    if watched := arguments.observability(config):
        Observability("observability", watched, after)
    SharedView("shared-view", config.teams, after)
    scheduler = backend(config.scheduler)
    priorities = Priorities("priorities", scheduler, after)
    policies = AdmissionPolicies("admission", arguments.admission(config), after)
    queues = scheduler.deploy("queues", arguments.queues(config), after)
    if checks := arguments.validation(config, planned.platform, planned.images):
        queued = [*base, priorities, *queues.cluster_queues.values()]
        inside = pulumi.ResourceOptions(provider=site.kubernetes, depends_on=queued)
        Validation("validation", checks, inside)
    teams = arguments.teams(
        config, planned.platform, planned.images, queues.cluster_queues, site.storage
    )
    opts = pulumi.ResourceOptions(
        provider=site.kubernetes, depends_on=[*base, policies, priorities]
    )
    shared = queues.named_by_runs
    return {name: [Team(f"team-{name}", team, opts).ready, *shared] for name, team in teams.items()}


def main() -> None:
    """Check everything, then deploy: a config issue ends the program before the first resource."""
    try:
        dry = pulumi.runtime.is_dry_run()
        planned = plan.make(engine_values(), pulumi.get_stack(), ROOT, preview=dry)
        add_ons.pull_charts(planned.config, ROOT)
    except ConfigError as error:
        raise pulumi.RunError(str(error)) from None
    if planned.placeholders:
        pulumi.log.warn(placeholders.warning(planned.placeholders))
    site = provision_aws(planned.config) or attach_existing(planned.config)
    warn_if_unreachable(site.kubeconfig, *arguments.kubeconfig(planned.config))
    ready = deploy_platform(planned, site)
    jobs = runs.deploy(planned.runs, planned.platform, ready, site.kubernetes, ROOT)
    pulumi.export("platform", planned.platform.export())
    if site.outputs:
        pulumi.export("site", dict(site.outputs))
    pulumi.export("runs", {run_id: job.outputs for run_id, job in jobs.items()})


if __name__ == "__main__":
    main()
