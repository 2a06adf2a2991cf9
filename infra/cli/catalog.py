"""`python -m infra.cli.catalog refresh [--region NAME]`: refresh infra/domain/catalog.yaml from AWS.

Needs credentials that may ec2:DescribeInstanceTypes, ec2:DescribeSpotPriceHistory and
pricing:GetProducts; `git diff` shows what changed. Interruption bands are those of a copy of AWS' Spot Instance
Advisor, and stay without one. Exit 0, or 1 and one line when AWS cannot be asked or the copy is not one.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import re
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from infra.domain import catalog
from infra.domain.catalog import Architecture, Catalog, InstanceType, Lookup, Price, data_file
from infra.domain.catalog.interruptions import Band

SOURCE: Final = "AWS price list API; EC2 spot price history, median of all zones over 7 days"
SPOT_DAYS: Final = 7

PRICE_LIST_REGION: Final = "us-east-1"
"""One of the few regions with an endpoint of the price list, which has prices of all regions."""

_ARCHITECTURES: Final = {"x86_64": Architecture.AMD64, "arm64": Architecture.ARM64}
_GIGABITS: Final = re.compile(r"(?:(\d+)x )?([\d.]+) Gigabit")

Client = Any
"""A boto3 client; boto3 creates them dynamically, without types."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Region:
    name: str
    ec2: Client
    """Of this region."""
    price_list: Client
    """The `pricing` client, of PRICE_LIST_REGION."""


def refreshed(catalog: Catalog, regions: Sequence[Region], now: datetime.datetime) -> Catalog:
    """Return the catalog with AWS's data of these regions; types and labels stay."""
    types = dict(catalog.types)
    lookups = dict(catalog.regions)
    described: set[str] = set()
    for region in regions:
        found = {row["InstanceType"]: row for row in _describe(region.ec2, types)}
        spot = _spot_prices(region.ec2, types, now)
        for name, instance in types.items():
            if name in found and name not in described:
                instance = dataclasses.replace(instance, **hardware(found[name]))
                described.add(name)
            new = Price(
                on_demand_usd_hour=on_demand_price(region.price_list, name, region.name),
                spot_usd_hour=spot.get(name),
            )
            prices = {**instance.prices, region.name: new}
            types[name] = dataclasses.replace(instance, prices=prices)
        known = lookups.get(region.name)
        lookups[region.name] = Lookup(
            date=now.date(),
            source=SOURCE,
            interruptions_source=known.interruptions_source if known else "",
        )
    return Catalog(lookups, types)


def bands(data: bytes, regions: Iterable[str]) -> dict[str, dict[str, Band]]:
    """Return the Spot Instance Advisor's bands of Linux instances by region and type.

    Raises LookupError or ValueError if the data has another format or lacks a region.
    """
    found = json.loads(data)
    labels = {one["index"]: Band(one["label"]) for one in found["ranges"]}
    return {
        region: {
            name: labels[one["r"]] for name, one in found["spot_advisor"][region]["Linux"].items()
        }
        for region in regions
    }


def with_interruptions(
    catalog: Catalog, bands: Mapping[str, Mapping[str, Band]], source: str
) -> Catalog:
    """Return the catalog with these bands by region and type; of these regions all others are removed."""
    lookups = {
        name: dataclasses.replace(one, interruptions_source=source) if name in bands else one
        for name, one in catalog.regions.items()
    }
    types = {
        name: dataclasses.replace(instance, interruptions=_replaced(instance, bands))
        for name, instance in catalog.types.items()
    }
    return Catalog(lookups, types)


def _replaced(instance: InstanceType, bands: Mapping[str, Mapping[str, Band]]) -> dict[str, Band]:
    kept = {r: band for r, band in instance.interruptions.items() if r not in bands}
    return kept | {
        r: by_type[instance.name] for r, by_type in bands.items() if instance.name in by_type
    }


def _describe(ec2: Client, names: Mapping[str, InstanceType]) -> Iterator[dict[str, Any]]:
    # A filter, since naming a type that the region lacks fails.
    filters = [{"Name": "instance-type", "Values": sorted(names)}]
    for page in ec2.get_paginator("describe_instance_types").paginate(Filters=filters):
        yield from page["InstanceTypes"]


def hardware(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields of InstanceType from a response of DescribeInstanceTypes."""
    gpus = row.get("GpuInfo", {}).get("Gpus", [])
    found: dict[str, Any] = {
        "vcpu": row["VCpuInfo"]["DefaultVCpus"],
        "memory_gib": row["MemoryInfo"]["SizeInMiB"] // 1024,
        "gpus": sum(gpu["Count"] for gpu in gpus),
        "gpu_memory_gib": min((gpu["MemoryInfo"]["SizeInMiB"] // 1024 for gpu in gpus), default=0),
        "efa_card_indexes": _efa_cards(row["NetworkInfo"]),
        "nvme_gb": row.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0),
        "architecture": _ARCHITECTURES[row["ProcessorInfo"]["SupportedArchitectures"][0]],
    }
    speed = _GIGABITS.search(row["NetworkInfo"].get("NetworkPerformance", ""))
    return found | ({"network_gbps": float(speed[2]) * int(speed[1] or 1)} if speed else {})


def _efa_cards(network: Mapping[str, Any]) -> tuple[int, ...]:
    """Return network cards that support EFA; the first ones where the API reports only a number."""
    cards = network.get("NetworkCards", [])
    if any("InterfaceTypes" in card for card in cards):
        return tuple(c["NetworkCardIndex"] for c in cards if "efa" in c["InterfaceTypes"])
    return tuple(range(network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0)))


def _spot_prices(
    ec2: Client, names: Mapping[str, InstanceType], now: datetime.datetime
) -> dict[str, float]:
    by_type: dict[str, list[float]] = {}
    pages = ec2.get_paginator("describe_spot_price_history").paginate(
        InstanceTypes=sorted(names),
        ProductDescriptions=["Linux/UNIX"],
        StartTime=now - datetime.timedelta(days=SPOT_DAYS),
        EndTime=now,
    )
    for page in pages:
        for row in page["SpotPriceHistory"]:
            by_type.setdefault(row["InstanceType"], []).append(float(row["SpotPrice"]))
    return {name: round(statistics.median(prices), 4) for name, prices in by_type.items()}


def on_demand_price(price_list: Client, name: str, region: str) -> float | None:
    """Return USD per hour of Linux in shared tenancy without licences; None: not offered."""
    wanted = {
        "instanceType": name,
        "regionCode": region,
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "capacitystatus": "Used",
        "preInstalledSw": "NA",
    }
    filters = [{"Type": "TERM_MATCH", "Field": k, "Value": v} for k, v in wanted.items()]
    pages = price_list.get_paginator("get_products").paginate(
        ServiceCode="AmazonEC2", Filters=filters
    )
    offers = [json.loads(offer) for page in pages for offer in page["PriceList"]]
    prices = {
        float(dimension["pricePerUnit"]["USD"])
        for offer in offers
        if offer["product"]["attributes"].get("marketoption", "OnDemand") == "OnDemand"
        for term in offer["terms"].get("OnDemand", {}).values()
        for dimension in term["priceDimensions"].values()
    }
    # Usage that is billed elsewhere, such as of a reservation, is listed at 0 USD.
    return max((usd for usd in prices if usd > 0), default=None)


ADVISOR: Final = "https://spot-bid-advisor.s3.amazonaws.com/spot-advisor-data.json"
"""What the console's Spot Instance Advisor reads; public, without credentials."""


def regions(names: Sequence[str]) -> list[Region]:
    price_list = boto3.client("pricing", region_name=PRICE_LIST_REGION)
    return [
        Region(name=name, ec2=boto3.client("ec2", region_name=name), price_list=price_list)
        for name in names
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    before = catalog.load()
    parser = argparse.ArgumentParser(prog="python -m infra.cli.catalog", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    refreshing = commands.add_parser("refresh", help="refresh types and prices from AWS")
    refreshing.add_argument(
        "--region",
        action="append",
        metavar="NAME",
        help=f"this region only, or one more; default: {', '.join(before.regions)}",
    )
    refreshing.add_argument(
        "--advisor",
        metavar="FILE",
        help=f"copy of {ADVISOR}; default: bands are kept",
    )
    args = parser.parse_args(arguments)
    chosen = args.region or list(before.regions)
    now = datetime.datetime.now(datetime.UTC)
    try:
        after = refreshed(before, regions(chosen), now)
    except (BotoCoreError, ClientError) as error:
        print(f"AWS: got {' '.join(str(error).split())}; nothing was changed", file=sys.stderr)
        return 1
    if args.advisor:
        try:
            found = bands(Path(args.advisor).read_bytes(), chosen)
        except (OSError, LookupError, TypeError, ValueError) as error:
            print(f"{args.advisor}: not a copy of {ADVISOR}: {error!r}", file=sys.stderr)
            return 1
        source = f"AWS' Spot Instance Advisor, a copy that was read on {now.date()}"
        after = with_interruptions(after, found, source)
    catalog.DATA.write_text(data_file.text(after), encoding="utf-8")
    print(f"{catalog.DATA.name}: {', '.join(chosen)} as of {now.date()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
