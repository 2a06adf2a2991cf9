"""Conversion of the stack file to the arguments of monitoring."""

from __future__ import annotations

from infra.addons.kube_prometheus_stack import NAME, Grafana, KubePrometheusStackArgs
from infra.config import platform_record
from infra.config.model import StackConfig
from infra.config.sections.observability import ObservabilityConfig
from infra.domain import catalog, naming, quantity
from infra.domain.pools import Capacity
from infra.observability.component import ObservabilityArgs
from infra.observability.monitors import GPU_EXPORTERS
from infra.observability.recording import Facts, NodePrice
from infra.observability.rules import rule_file


def kube_prometheus_stack(config: StackConfig) -> KubePrometheusStackArgs:
    """Return the arguments of the release that the stack installs."""
    section = config.observability or ObservabilityConfig()
    found = section.grafana
    grafana = (
        Grafana(url=found.url, admin_secret=found.admin_secret_name)
        if found and found.admin_secret_name
        else None
    )
    own_class = naming.BLOCK_STORAGE_CLASS if config.on_aws else ""
    return KubePrometheusStackArgs(
        cluster=config.cluster.name,
        retention_days=section.retention_days,
        volume_bytes=quantity.bytes_(section.volume),
        storage_class=section.storage_class or own_class,
        scrape_seconds=section.scrape_seconds,
        receivers=tuple(one.receiver for one in section.receivers),
        grafana=grafana,
    )


def needs_block_volumes(config: StackConfig) -> bool:
    """Whether the cluster needs a class of volumes that one node writes, which EKS does not come with."""
    section = config.observability or ObservabilityConfig()
    return NAME in platform_record.to_install(config) and section.storage_class is None


def observability(config: StackConfig) -> ObservabilityArgs | None:
    """Return rules, monitors and dashboards; None without a Prometheus."""
    present = platform_record.present_operators(config)
    if NAME not in present:
        return None
    # Building dashboards loads their library, a cost for stacks without them.
    from infra.observability import dashboards

    section = config.observability or ObservabilityConfig()
    exporters = [name for name in GPU_EXPORTERS if name in present]
    return ObservabilityArgs(
        groups=rule_file(facts(config), section.runbooks or "")["groups"],
        dashboards=dashboards.rendered(),
        scrape_seconds=section.scrape_seconds,
        gpu_exporter=exporters[0] if exporters else "",
        kueue="kueue" in present,
        isolated=NAME in platform_record.to_install(config),
    )


def facts(config: StackConfig) -> Facts:
    """Prices and budgets of the stack, which no exporter knows."""
    section = config.observability or ObservabilityConfig()
    return Facts(
        prices=_prices(config),
        team_budgets={
            team.name: float(team.on_demand_usd_per_hour)
            for team in config.teams
            if team.on_demand_usd_per_hour is not None
        },
        stack_budget=section.budget_usd_per_hour,
    )


def _prices(config: StackConfig) -> tuple[NodePrice, ...]:
    """Both ways of buying each type, in the region of the pools."""
    found: dict[tuple[str, str], NodePrice] = {}
    for pool in config.pools:
        for name in pool.instance_types:
            price = catalog.price(name, pool.region)
            for capacity, usd in (
                (Capacity.ON_DEMAND, price.on_demand_usd_hour),
                (Capacity.SPOT, price.spot_usd_hour),
            ):
                if usd is not None:
                    one = NodePrice(instance_type=name, capacity=capacity.value, usd_per_hour=usd)
                    found[name, capacity.value] = one
    return tuple(found[key] for key in sorted(found))
