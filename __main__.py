"""The whole of a stack: its platform, its teams, its runs. This program only composes."""

from pathlib import Path

import pulumi
import pulumi_kubernetes as k8s

from infra.config import ConfigError, StackConfig, arguments, engine_values
from infra.outputs import Platform
from infra.platform.kueue import KueueQueues
from infra.platform.operators import Operators
from infra.platform.priorities import Priorities
from infra.simulated.node_pools import SimulatedNodePools
from infra.simulated.storage import SimulatedStorage
from infra.tenancy.team import Team
from training.deployment import lineage, plan
from training.deployment.preparation import DatasetPreparation, DatasetPreparationArgs, Preparation
from training.job import TrainingJob, TrainingJobArgs
from training.spec import RunSpec

ROOT = Path(__file__).resolve().parent


def deploy_platform(config: StackConfig, on: k8s.Provider) -> dict[str, list[pulumi.Resource]]:
    """Nodes, storage, operators, queues, teams; by team, what its runs depend on."""
    opts = pulumi.ResourceOptions(provider=on)
    base: list[pulumi.Resource] = []
    if (nodes := arguments.simulated_nodes(config)).pools:
        base.append(SimulatedNodePools("nodes", nodes, opts))
    named = arguments.named_storage(config)
    storage = named or SimulatedStorage("storage", arguments.simulated_storage(config), opts)
    if isinstance(storage, SimulatedStorage):
        base.append(storage)
    if (operators := arguments.operators(config)).install:
        base.append(Operators("operators", operators, opts))
    after = pulumi.ResourceOptions(provider=on, depends_on=base)
    priorities = Priorities("priorities", after)
    queues = KueueQueues("queues", arguments.queues(config), after)
    teams = arguments.teams(config, queues.cluster_queues, storage)
    return {name: [Team(f"team-{name}", team, after), priorities] for name, team in teams.items()}


def deploy_runs(
    runs: list[RunSpec],
    platform: Platform,
    ready: dict[str, list[pulumi.Resource]],
    on: k8s.Provider,
) -> dict[str, TrainingJob]:
    """Each dataset is prepared once, before the runs that read it."""
    prepared: dict[Preparation | None, list[pulumi.Resource]] = {None: []}
    jobs: dict[str, TrainingJob] = {}
    commit = lineage.git_commit(ROOT)
    for run in runs:
        need = Preparation.of(run)
        if need and need not in prepared:
            opts = pulumi.ResourceOptions(provider=on, depends_on=ready[run.team])
            work = DatasetPreparationArgs(preparation=need, platform=platform)
            prepared[need] = [DatasetPreparation(f"{run.team}-{need.name}", work, opts)]
        opts = pulumi.ResourceOptions(provider=on, depends_on=[*ready[run.team], *prepared[need]])
        args = TrainingJobArgs(run=run, platform=platform, git_commit=commit)
        jobs[run.run_id] = TrainingJob(run.run_id, args, opts)
    return jobs


def main() -> None:
    """Check everything, then create it: a mistake ends the program before the first resource."""
    try:
        planned = plan.make(engine_values(), pulumi.get_stack(), ROOT)
    except ConfigError as error:
        raise pulumi.RunError(str(error)) from None
    on = k8s.Provider("cluster", arguments.provider(planned.config))
    ready = deploy_platform(planned.config, on)
    jobs = deploy_runs(planned.runs, planned.platform, ready, on)
    pulumi.export("platform", planned.platform.export())
    pulumi.export("runs", {run_id: job.outputs for run_id, job in jobs.items()})


main()
