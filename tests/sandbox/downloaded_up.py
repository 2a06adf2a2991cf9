"""`make up` where the sites of releases answer: `python -m tests.sandbox.downloaded_up BINARIES`.

BINARIES: JSON file with the path of each program by name. They are served by a local server in upstream's layout.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from sandbox import cli
from sandbox.toolchain.tools import MONITORING_TOOLS, TOOLS, Tool
from tests.unit.sandbox.upstream import upstream


def main(binaries: Path) -> int:
    """Publish the programs, then run `up`; return its exit code."""
    paths = {name: Path(path) for name, path in json.loads(binaries.read_text()).items()}
    accepts = Tool.accepts_version
    with pytest.MonkeyPatch.context() as patch, upstream(patch) as site:
        for tool in TOOLS:
            if tool.name not in MONITORING_TOOLS:
                site.publish(
                    tool, {one.name: paths[one.name].read_bytes() for one in tool.binaries}
                )
        # A released Pulumi prints its version with a v, one that was built here without.
        patch.setattr(
            Tool,
            "accepts_version",
            lambda tool, text: accepts(tool, text) or accepts(tool, f"v{text}"),
        )
        print(f"Published: {sum(map(len, site.files.values())) / 1e6:.0f} MB", flush=True)
        return cli.main(["up"])


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
