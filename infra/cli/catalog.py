"""`python -m infra.cli.catalog refresh [--region NAME]`: refresh infra/domain/catalog.yaml from AWS.

Needs credentials that may ec2:DescribeInstanceTypes, ec2:DescribeSpotPriceHistory and
pricing:GetProducts. Prints what changed. Exit 0, or 1 and one line when AWS cannot be asked.
Interruption bands are those of AWS' Spot Instance Advisor, which is public; where it cannot be read, one line on
stderr says so, the bands are kept and the rest is refreshed.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Sequence

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from infra.cli import catalog_refresh, spot_advisor
from infra.domain import catalog
from infra.domain.catalog import Catalog, data_file


def regions(names: Sequence[str]) -> list[catalog_refresh.Region]:
    """Return clients for the regions, with the environment's credentials."""
    price_list = boto3.client("pricing", region_name=catalog_refresh.PRICE_LIST_REGION)
    return [
        catalog_refresh.Region(
            name=name, ec2=boto3.client("ec2", region_name=name), price_list=price_list
        )
        for name in names
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
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
        default=spot_advisor.URL,
        metavar="URL|FILE",
        help="copy of the Spot Instance Advisor's data; default: %(default)s",
    )
    args = parser.parse_args(arguments)
    chosen = args.region or list(before.regions)
    now = datetime.datetime.now(datetime.UTC)
    try:
        after = catalog_refresh.refreshed(before, regions(chosen), now)
    except (BotoCoreError, ClientError) as error:
        print(f"AWS: got {' '.join(str(error).split())}; nothing was changed", file=sys.stderr)
        return 1
    after = with_interruptions(after, chosen, args.advisor, now)
    catalog.DATA.write_text(data_file.text(after), encoding="utf-8")
    for line in catalog_refresh.changes(before, after):
        print(line)
    print(f"{catalog.DATA.name}: {', '.join(chosen)} as of {now.date()}")
    return 0


def with_interruptions(
    found: Catalog, chosen: Sequence[str], source: str, now: datetime.datetime
) -> Catalog:
    """Return the catalog with the advisor's bands of these regions, or as it is and one line on stderr."""
    try:
        bands = spot_advisor.bands(spot_advisor.read(source), chosen)
    except spot_advisor.AdvisorError as error:
        print(f"{source}: {error}; interruption bands are kept", file=sys.stderr)
        return found
    text = f"AWS' Spot Instance Advisor as of {now.date()}"
    if source != spot_advisor.URL:
        text = f"AWS' Spot Instance Advisor, a copy that was read on {now.date()}"
    return catalog_refresh.with_interruptions(found, bands, text)


if __name__ == "__main__":
    sys.exit(main())
