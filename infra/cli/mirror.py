"""`python -m infra.cli.mirror FILE`: list the charts and images that a stack's mirror must have, one per line.

Without `mirror` in the file, targets show `MIRROR` in its place, so that a mirror can be filled before the stack
file names it. With `--digests` it asks the charts' registries, those of the mirror where the file names one, and
prints the section `charts` of the stack file with the digests of today.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from infra.addons.mirror import Copy, copies
from infra.addons.registry import ADD_ONS
from infra.config import ConfigError, add_ons, platform_record
from infra.config.loader import parse, stack_values
from infra.config.model import StackConfig
from infra.kubernetes.chart_archives import ChartError, published_digest

_UNNAMED = "MIRROR"


def required_copies(config: StackConfig) -> list[Copy]:
    """Return everything to copy, charts first."""
    return copies(platform_record.installed(config), config.mirror or _UNNAMED)


def format_line(copy: Copy) -> str:
    """Return kind, version, source and target; `as-in-chart` for a version that the chart chooses."""
    return f"{copy.kind} {copy.version or 'as-in-chart'} {copy.source} {copy.target}"


def _print_digests(config: StackConfig) -> int:
    print("trainyard:charts:")
    failed = 0
    for name in platform_record.installed(config):
        if ADD_ONS[name].chart:
            try:
                digest = published_digest(add_ons.chart(config, name))
                print(f"  {name}: {{digest: {digest}}}", flush=True)
            except ChartError as error:
                print(f"error: {error}", file=sys.stderr)
                failed = 1
    return failed


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m infra.cli.mirror", description=__doc__)
    parser.add_argument("file", metavar="FILE", type=Path, help="such as Pulumi.prod.yaml")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--digests", action="store_true", help="print the digests of the charts")
    given = parser.parse_args(arguments)
    try:
        config = parse(stack_values(given.file))
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    if given.digests:
        return _print_digests(config)
    for copy in required_copies(config):
        print(json.dumps(vars(copy), sort_keys=True) if given.json else format_line(copy))
    return 0


if __name__ == "__main__":
    sys.exit(main())
