"""A sandbox whose tools are downloaded, as on machines that reach the sites of releases: nothing is built."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from sandbox import cli, paths, toolchain
from sandbox.toolchain.tools import MONITORING_TOOLS, TOOLS, Tool
from tests.unit.sandbox.upstream import upstream

pytestmark = [pytest.mark.sandbox, pytest.mark.full_only, pytest.mark.timeout(1200)]
EVENTS = ("Published", "from downloaded", r"step \d+ /")
"""Lines whose times count: the sites are there, the tools are, the run trains."""


def test_with_downloads_a_run_starts_without_a_build(tmp_path: Path) -> None:
    tools = toolchain.ensure_for_runs(Console(force_terminal=False))
    binaries = tmp_path / "binaries.json"
    binaries.write_text(json.dumps({name: str(path) for name, path in tools.binaries.items()}))
    env = os.environ | {
        "TRAINYARD_CACHE": str(tmp_path / "cache"),
        "SANDBOX_HOME": str(tmp_path / "home"),
        "SANDBOX_MONITORING": "off",
    }
    lines, seen = [], dict[str, float]()
    up = subprocess.Popen(
        [sys.executable, "-m", "tests.sandbox.test_downloaded_tools", str(binaries)],
        cwd=paths.PROJECT,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert up.stdout is not None
        for line in up.stdout:
            lines.append(line)
            for event in EVENTS:
                if re.search(event, line):
                    seen.setdefault(event, time.monotonic())
        assert up.wait() == 0, "".join(lines[-40:])
    finally:
        up.kill()
        clean = [sys.executable, "-m", "sandbox", "clean"]
        subprocess.run(clean, cwd=paths.PROJECT, env=env, check=True, capture_output=True)
    (sources,) = [line for line in lines if "from downloaded" in line]
    assert not [line for line in lines if "from built" in line]
    downloaded = re.findall(r"[a-z]+", sources.partition(":")[2])
    assert downloaded == ["etcd", "jobset", "kubernetes", "kueue", "kwok", "pulumi"]
    published = next(line.strip() for line in lines if "Published" in line)
    tools_s, step_s = (seen[event] - seen[EVENTS[0]] for event in EVENTS[1:])
    print(f"{published}. Tools after {tools_s:.0f} s, a step is shown after {step_s:.0f} s")


def up(binaries: Path) -> int:
    """Run `up` where a local server publishes the programs, in upstream's layout; return its exit code."""
    files = {name: Path(path) for name, path in json.loads(binaries.read_text()).items()}
    accepts = Tool.accepts_version
    with pytest.MonkeyPatch.context() as patch, upstream(patch) as site:
        for tool in TOOLS:
            if tool.name not in MONITORING_TOOLS:
                site.publish(
                    tool, {one.name: files[one.name].read_bytes() for one in tool.binaries}
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
    sys.exit(up(Path(sys.argv[1])))
