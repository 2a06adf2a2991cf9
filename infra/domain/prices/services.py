"""Prices of what a stack has besides its node pools: control plane, network, storage, keys, logs.

A resource is priced by its Pulumi type and inputs, as `python -m infra.render` and `pulumi preview --json` give
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from infra.domain import catalog
from infra.domain.prices import HOURS_PER_MONTH, Purchase, usd_per_hour

DATA: Final = Path(__file__).with_suffix(".yaml")

SOURCE: Final = "from memory in 2026, compared with public tables of us-east-1 only"
"""Of services.yaml."""

FREE_IOPS: Final = 3_000
FREE_MIB_PER_S: Final = 125
"""What a gp3 volume includes."""

Inputs = Mapping[str, Any]
Rates = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class ResourcePrice:
    what: str
    """The service, such as `NAT gateway`."""
    usd_per_month: float | None
    """What it costs while nothing runs; None: not known in this region."""
    usage: str = ""
    """What use costs in addition, such as `0.045 USD per GB`; empty: nothing."""
    stateful: bool = False
    """Whether deleting it loses data."""

    @property
    def usd_per_hour(self) -> float | None:
        return None if self.usd_per_month is None else self.usd_per_month / HOURS_PER_MONTH


@cache
def _data() -> Mapping[str, Rates]:
    found: Mapping[str, Rates] = yaml.safe_load(DATA.read_text(encoding="utf-8"))
    return found


def rates(region: str = catalog.DEFAULT_REGION) -> Rates:
    """Return a region's prices by the keys of services.yaml; empty for a region that it lacks."""
    return _data().get(region, {})


def volume_usd_per_month(
    gib: float,
    iops: float = FREE_IOPS,
    mib_per_s: float = FREE_MIB_PER_S,
    region: str = catalog.DEFAULT_REGION,
) -> float | None:
    """Return the price of a gp3 volume, such as a node's root volume; None: not known."""
    known = rates(region)
    if not known:
        return None
    return float(
        gib * known["volumeGiBMonth"]
        + max(0.0, iops - FREE_IOPS) * known["volumeIopsMonth"]
        + max(0.0, mib_per_s - FREE_MIB_PER_S) * known["volumeMiBpsMonth"]
    )


def of_resource(
    kind: str, inputs: Inputs, region: str = catalog.DEFAULT_REGION
) -> ResourcePrice | None:
    """Return the price of a resource by its Pulumi type; None: it costs nothing by itself, or is a node pool.

    Node pools are priced by `infra.domain.prices`; the nodes of the cluster's own controllers, which are no pool
    of the stack file, are priced here.
    """
    rule = _RULES.get(kind)
    return rule(inputs, rates(region), region) if rule else None


def monthly(records: Iterable[Mapping[str, Any]], region: str) -> list[tuple[str, ResourcePrice]]:
    """Return (name, price) of the priced ones of rendered resources, each with `type`, `name` and `inputs`."""
    found = ((str(r["name"]), of_resource(str(r["type"]), r["inputs"], region)) for r in records)
    return [(name, price) for name, price in found if price is not None]


def _by_hour(usd: Any) -> float | None:
    return None if usd is None else float(usd) * HOURS_PER_MONTH


def _usage(rates: Rates, **keys: str) -> str:
    """Return the prices of use by unit; `read=KEY` becomes `0.03 USD per GB read`."""
    units = {"moved": "GB", "stored": "GB and month stored", "unit": "capacity unit and hour"}
    return ", ".join(
        f"{rates[key]:g} USD per {units.get(name, f'GB {name}')}"
        for name, key in keys.items()
        if key in rates
    )


def _cluster(_: Inputs, known: Rates, __: str) -> ResourcePrice:
    return ResourcePrice(what="control plane", usd_per_month=_by_hour(known.get("clusterHour")))


def _nat(_: Inputs, known: Rates, __: str) -> ResourcePrice:
    return ResourcePrice(
        what="NAT gateway",
        usd_per_month=_by_hour(known.get("natGatewayHour")),
        usage=_usage(known, moved="natGatewayGB"),
    )


def _address(_: Inputs, known: Rates, __: str) -> ResourcePrice:
    usd = _by_hour(known.get("publicAddressHour"))
    return ResourcePrice(what="public address", usd_per_month=usd)


def _endpoint(inputs: Inputs, known: Rates, _: str) -> ResourcePrice | None:
    if inputs.get("vpcEndpointType") != "Interface":
        return None
    zones = len(inputs.get("subnetIds") or ())
    each = _by_hour(known.get("endpointHour"))
    return ResourcePrice(
        what="interface endpoint",
        usd_per_month=None if each is None else zones * each,
        usage=_usage(known, moved="endpointGB"),
    )


def _balancer(_: Inputs, known: Rates, __: str) -> ResourcePrice:
    return ResourcePrice(
        what="load balancer",
        usd_per_month=_by_hour(known.get("loadBalancerHour")),
        usage=_usage(known, unit="loadBalancerUnitHour"),
    )


def _service(inputs: Inputs, known: Rates, region: str) -> ResourcePrice | None:
    kind = (inputs.get("spec") or {}).get("type")
    return _balancer(inputs, known, region) if kind == "LoadBalancer" else None


def _lustre(inputs: Inputs, known: Rates, _: str) -> ResourcePrice:
    each = (known.get("lustreGBMonth") or {}).get(int(inputs.get("perUnitStorageThroughput") or 0))
    size = inputs.get("storageCapacity")
    known_size = isinstance(size, int | float) and each is not None
    return ResourcePrice(
        what="FSx for Lustre",
        usd_per_month=float(size or 0) * float(each or 0) if known_size else None,
        stateful=True,
    )


def _elastic_files(_: Inputs, known: Rates, __: str) -> ResourcePrice:
    parts = {"stored": "elasticFileGBMonth", "read": "elasticFileReadGB"}
    return ResourcePrice(
        what="EFS",
        usd_per_month=0.0 if known else None,
        usage=_usage(known, **parts, written="elasticFileWrittenGB"),
        stateful=True,
    )


def _bucket(_: Inputs, known: Rates, __: str) -> ResourcePrice:
    return ResourcePrice(
        what="S3 bucket",
        usd_per_month=0.0 if known else None,
        usage=_usage(known, stored="objectGBMonth"),
        stateful=True,
    )


def _log_group(_: Inputs, known: Rates, __: str) -> ResourcePrice:
    return ResourcePrice(
        what="log group",
        usd_per_month=0.0 if known else None,
        usage=_usage(known, written="logGB", stored="logGBMonth"),
        stateful=True,
    )


def _key(_: Inputs, known: Rates, __: str) -> ResourcePrice:
    usd = known.get("keyMonth")
    return ResourcePrice(
        what="KMS key", usd_per_month=None if usd is None else float(usd), stateful=True
    )


def _volume(inputs: Inputs, _: Rates, region: str) -> ResourcePrice:
    size = inputs.get("size")
    known = isinstance(size, int | float)
    usd = volume_usd_per_month(
        float(size or 0) if known else 0.0,
        float(inputs.get("iops") or FREE_IOPS),
        float(inputs.get("throughput") or FREE_MIB_PER_S),
        region,
    )
    return ResourcePrice(what="EBS volume", usd_per_month=usd if known else None, stateful=True)


def _node_group(inputs: Inputs, _: Rates, region: str) -> ResourcePrice | None:
    """Price the minimum of a group that is no pool of the stack file: the nodes of the controllers."""
    if (inputs.get("labels") or {}).get("node-type") != "system":
        return None
    types = inputs.get("instanceTypes") or []
    each = [usd_per_hour(str(name), Purchase.ON_DEMAND, region) for name in types]
    known = [usd for usd in each if usd is not None]
    nodes = int((inputs.get("scalingConfig") or {}).get("minSize") or 0)
    usd = nodes * max(known) * HOURS_PER_MONTH if known and len(known) == len(each) else None
    return ResourcePrice(what="system nodes", usd_per_month=usd)


_RULES: Final[Mapping[str, Callable[[Inputs, Rates, str], ResourcePrice | None]]] = {
    "eks:index:Cluster": _cluster,
    "aws:ec2/natGateway:NatGateway": _nat,
    "aws:ec2/eip:Eip": _address,
    "aws:ec2/vpcEndpoint:VpcEndpoint": _endpoint,
    "aws:lb/loadBalancer:LoadBalancer": _balancer,
    "kubernetes:core/v1:Service": _service,
    "aws:fsx/lustreFileSystem:LustreFileSystem": _lustre,
    "aws:efs/fileSystem:FileSystem": _elastic_files,
    "aws:s3/bucket:Bucket": _bucket,
    "aws:cloudwatch/logGroup:LogGroup": _log_group,
    "aws:kms/key:Key": _key,
    "aws:ebs/volume:Volume": _volume,
    "aws:eks/nodeGroup:NodeGroup": _node_group,
}
"""By Pulumi type. The cluster inside of `eks:index:Cluster`, which previews list, too, has no rule."""
