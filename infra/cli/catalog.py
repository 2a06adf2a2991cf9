"""`python -m infra.cli.catalog refresh [--region NAME]`: refresh infra/domain/catalog.yaml from AWS.

Needs credentials that may ec2:DescribeInstanceTypes, ec2:DescribeSpotPriceHistory and
pricing:GetProducts; `git diff` shows what changed. Interruption bands are those of a copy of AWS' Spot Instance
Advisor, and stay without one. Exit 0, or 1 and one line when AWS cannot be asked or the copy is not one.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from infra.cli import catalog_refresh
from infra.domain import catalog
from infra.domain.catalog import data_file

ADVISOR: Final = "https://spot-bid-advisor.s3.amazonaws.com/spot-advisor-data.json"
"""What the console's Spot Instance Advisor reads; public, without credentials."""


def regions(names: Sequence[str]) -> list[catalog_refresh.Region]:
    price_list = boto3.client("pricing", region_name=catalog_refresh.PRICE_LIST_REGION)
    return [
        catalog_refresh.Region(
            name=name, ec2=boto3.client("ec2", region_name=name), price_list=price_list
        )
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
        after = catalog_refresh.refreshed(before, regions(chosen), now)
    except (BotoCoreError, ClientError) as error:
        print(f"AWS: got {' '.join(str(error).split())}; nothing was changed", file=sys.stderr)
        return 1
    if args.advisor:
        try:
            bands = catalog_refresh.bands(Path(args.advisor).read_bytes(), chosen)
        except (OSError, LookupError, TypeError, ValueError) as error:
            print(f"{args.advisor}: not a copy of {ADVISOR}: {error!r}", file=sys.stderr)
            return 1
        source = f"AWS' Spot Instance Advisor, a copy that was read on {now.date()}"
        after = catalog_refresh.with_interruptions(after, bands, source)
    catalog.DATA.write_text(data_file.text(after), encoding="utf-8")
    print(f"{catalog.DATA.name}: {', '.join(chosen)} as of {now.date()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
