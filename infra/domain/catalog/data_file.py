"""Deterministic text of the catalog's data file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final

from infra.domain.catalog import Catalog, InstanceType

_HEADER: Final = """\
# Instance types that node pools may name. `python -m infra.cli.catalog refresh` writes this file from AWS, except
# the names of types and regions and gpuModel, which are chosen here. Prices are USD per hour, Linux, shared
# tenancy; null: not sold there, or unknown. Use them to compare pools and for cost caps, never for billing.
# interruptions: share of spot instances that were interrupted in a month; null: not listed.
"""


def text(catalog: Catalog) -> str:
    return "".join([_HEADER, "regions:\n", *_regions(catalog), "types:\n", *_types(catalog)])


def _regions(catalog: Catalog) -> Iterable[str]:
    for name, lookup in catalog.regions.items():
        yield f'  {name}:\n    date: "{lookup.date}"\n    source: {json.dumps(lookup.source)}\n'
        yield f"    interruptionsSource: {json.dumps(lookup.interruptions_source)}\n"
        yield f"    remembered: {json.dumps(list(lookup.remembered))}\n"


def _types(catalog: Catalog) -> Iterable[str]:
    for name, instance in catalog.types.items():
        yield f"  {name}:\n"
        for key, value in _row(instance, tuple(catalog.regions)).items():
            yield f"    {key}: {value}\n"


def _row(instance: InstanceType, regions: Iterable[str]) -> dict[str, str]:
    prices = {region: instance.prices[region] for region in regions if region in instance.prices}
    return {
        "vcpu": str(instance.vcpu),
        "memoryGiB": str(instance.memory_gib),
        "gpus": str(instance.gpus),
        "gpuModel": json.dumps(instance.gpu_model),
        "gpuMemoryGiB": str(instance.gpu_memory_gib),
        "efaCards": json.dumps(list(instance.efa_card_indexes)),
        "networkGbps": f"{instance.network_gbps:g}",
        "nvmeGB": str(instance.nvme_gb),
        "architecture": instance.architecture.value,
        "onDemand": _by_region({r: p.on_demand_usd_hour for r, p in prices.items()}),
        "spot": _by_region({r: p.spot_usd_hour for r, p in prices.items()}),
        "interruptions": _by_region({r: instance.interruptions.get(r) for r in prices}),
    }


def _by_region(values: Mapping[str, float | str | None]) -> str:
    inner = ", ".join(f"{region}: {json.dumps(value)}" for region, value in values.items())
    return f"{{{inner}}}"
