"""Where results were measured, and the file that records them."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Final

from bench.request import ROOT

HEAD: Final = """# Results

Written by `make bench`; each section is the last output of one benchmark. The machine is small and shared, so
speeds are ratios of interleaved rounds, with their spread; counts do not depend on the machine.
"""
_LIBRARIES: Final = ("torch", "transformers", "numpy", "safetensors")
_TOOLS: Final = {
    "Kubernetes": "k8s.io/kubernetes",
    "etcd": "go.etcd.io/etcd/server/v3",
    "Kueue": "sigs.k8s.io/kueue",
    "JobSet": "sigs.k8s.io/jobset",
    "KWOK": "sigs.k8s.io/kwok",
}
"""Go module by component, all in one module graph of the sandbox's toolchain."""


def environment(versions: str) -> str:
    """Return date, commit and machine, and the versions of the `libraries` or of the `cluster`."""
    found: dict[str, str] = {}
    if versions == "libraries":
        found = {name: metadata.version(name) for name in _LIBRARIES}
    if versions == "cluster":
        found = {name: _version(module) for name, module in _TOOLS.items()}
    listed = ", ".join(f"{name} {version}" for name, version in found.items())
    return f"{_machine()}; {listed}." if listed else f"{_machine()}."


def bullets(title: str, lines: Sequence[str]) -> list[str]:
    """Return the lines as a list with a title; nothing without any."""
    return ["", title, *(f"- {line}" for line in lines)] if lines else []


def _machine() -> str:
    """Return date, commit and machine, without paths or host names."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3
    cores = len(os.sched_getaffinity(0))
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, commit {_commit()}; {cores} cores ({_processor()}),"
        f" {memory:.0f} GiB, Linux {platform.release().partition('-')[0]},"
        f" Python {platform.python_version()}"
    )


def _processor() -> str:
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    found = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    return found[1] if found else platform.machine()


def _version(module: str) -> str:
    text = (ROOT / "sandbox" / "toolchain" / "control-plane" / "go.mod").read_text()
    found = re.search(rf"^\s*(?:require )?{re.escape(module)} v(\S+)", text, re.MULTILINE)
    return found[1] if found else "unknown"


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def record(file: Path, sections: Mapping[str, str]) -> None:
    """Write these sections into the file and keep its other sections."""
    text = file.read_text() if file.exists() else HEAD
    for name, body in sections.items():
        block = f"## {name}\n\n{body}\n"
        old = re.compile(rf"^## {name}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
        found = old.search(text)
        before, after = (text[: found.start()], text[found.end() :]) if found else (text, "")
        text = f"{before.rstrip()}\n\n{block}\n{after}"
    file.write_text(text.rstrip() + "\n")
