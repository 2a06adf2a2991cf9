"""`python -m infra.cli.chart_values [ADD_ON...]`: refresh the known keys of charts; needs `go` on PATH.

Downloads the charts' Go modules into Go's cache. Exit code 0; 1 with one line if a module is not available; 2
for a wrong command line.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

import yaml

from infra.addons import chart_values
from infra.addons.registry import CHART_SOURCES
from infra.cli import go_modules


def values(add_on: str) -> dict[str, Any]:
    """Return a chart's values.yaml. Raises LookupError if its module is not available."""
    module = f"{CHART_SOURCES[add_on].module}@{chart_values.module_version(add_on)}"
    text = go_modules.read(module, f"{CHART_SOURCES[add_on].path}/values.yaml")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m infra.cli.chart_values", description=__doc__)
    parser.add_argument("add_ons", metavar="ADD_ON", nargs="*", help=", ".join(CHART_SOURCES))
    chosen = parser.parse_args(arguments).add_ons
    if foreign := [name for name in chosen if name not in CHART_SOURCES]:
        parser.error(f"ADD_ON: got {', '.join(foreign)}; allowed {', '.join(CHART_SOURCES)}")
    for add_on in chosen or CHART_SOURCES:
        try:
            keys = chart_values.key_kinds(values(add_on))
        except LookupError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        module = f"{CHART_SOURCES[add_on].module}@{chart_values.module_version(add_on)}"
        content = {"module": module, "keys": keys}
        text = json.dumps(content, indent=1, sort_keys=True)
        chart_values.keys_file(add_on).write_text(f"{text}\n", encoding="utf-8")
        print(f"{add_on}: {content['module']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
