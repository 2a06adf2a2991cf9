"""Compose a stack: its platform, its teams and its runs. Nothing else is decided here."""

from pathlib import Path

import pulumi

from infra.config import ConfigError, add_ons, arguments, deployment, engine_values, placeholders
from infra.domain.cluster_target import ClusterTarget
from infra.tenancy.team import Team
from ops.reachability import warn_if_unreachable
from training import lineage, plan, runs

ROOT = Path(__file__).resolve().parent


def deploy_teams(
    planned: plan.Plan, site: ClusterTarget, done: deployment.Deployed
) -> dict[str, list[pulumi.Resource]]:
    """Deploy the teams; return by team what its runs depend on."""
    queues = done.queues.cluster_queues
    teams = arguments.teams(planned.config, planned.platform, planned.images, queues, site.storage)
    opts = pulumi.ResourceOptions(provider=site.kubernetes, depends_on=done.before_teams)
    ready: dict[str, list[pulumi.Resource]] = {}
    for name, team in teams.items():
        made = Team(f"team-{name}", team, opts)
        ready[name] = [made.ready, *done.queues.named_by_runs]
        inside = pulumi.ResourceOptions(parent=made, depends_on=[made.ready])
        runs.deploy_runtime(f"team-{name}", name, planned.platform, planned.images, inside)
    return ready


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
    config, platform = planned.config, planned.platform
    created = deployment.provision_aws(config, pulumi.get_stack())
    site = created or deployment.attach_existing(config)
    warn_if_unreachable(site.kubeconfig, *arguments.kubeconfig(config))
    done = deployment.deploy_platform(config, platform, planned.images, site)
    ready = deploy_teams(planned, site, done)
    launched = lineage.git_commit(ROOT), lineage.launch(ROOT)
    jobs = runs.deploy(planned.runs, platform, ready, site.kubernetes, *launched)
    pulumi.export("platform", planned.platform.export())
    if site.outputs:
        pulumi.export("site", dict(site.outputs))
    pulumi.export("runs", {run_id: job.outputs for run_id, job in jobs.items()})


if __name__ == "__main__":
    main()
