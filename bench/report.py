"""Render results as Markdown: measurements, machine, and goals."""

from __future__ import annotations

import math
import os
import platform
import re
import statistics
import subprocess
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Final

from bench.admission import GOAL, WRITES_GOAL
from bench.admission import Outcome as AdmissionOutcome
from bench.embedded import ROOT
from bench.fleet import MINIMAL_ARM, TRAINYARD_ARM
from bench.rounds import RoundResult
from bench.statistics import median_and_bound
from bench.storm import EVICTIONS_MAX, HIGH, LOW, RESTART_S
from bench.storm import Outcome as StormOutcome

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


def admission(outcome: AdmissionOutcome) -> str:
    """Return the section of an admission benchmark."""
    size = outcome.size
    middle, low, high = median_and_bound(outcome.ratios)
    lines = [
        f"{size.nodes} nodes; {size.workloads} gangs{'' if size.pods else ', as Workloads without pods,'}"
        f" queued, then released at once, in each of {2 * size.pairs} rounds (seed {size.seed});"
        f" {_environment()}",
        "",
        "| configuration | admitted/s, median (range) | finished/s, median | API writes per gang"
        " | CPU s per gang | API server write p99, worst | evictions | late pods | violations |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for arm in (TRAINYARD_ARM, MINIMAL_ARM):
        rounds = outcome.rounds_of(arm)
        speeds = [r.admitted_per_s for r in rounds]
        lines.append(
            f"| {arm} | {statistics.median(speeds):.2f} ({min(speeds):.2f} to {max(speeds):.2f})"
            f" | {statistics.median(r.finished_per_s for r in rounds):.2f}"
            f" | {statistics.median(r.writes_per_gang for r in rounds):.1f}"
            f" | {statistics.median(r.cpu_s_per_gang for r in rounds):.2f}"
            f" | {max(r.write_p99_s for r in rounds) * 1000:.0f} ms"
            f" | {sum(r.evictions for r in rounds)} | {sum(r.late_pods for r in rounds)}"
            f" | {sum(r.violations for r in rounds)} |"
        )
    met = "met" if middle >= GOAL else "not met"
    lines += [
        "",
        f"Ratio ours / minimal: **{middle:.3f}** ({low:.3f} to {high:.3f}, {size.pairs} pairs);"
        f" the goal of {GOAL} is {met}. API writes per gang: **{outcome.writes_ratio:.2f}** times minimal's;"
        f" the goal of at most {WRITES_GOAL} is {'met' if outcome.writes_ratio <= WRITES_GOAL else 'not met'}.",
        "",
        *_waits(outcome),
        "",
        *_costs(outcome),
        *_list("First violations:", [line for r in outcome.rounds for line in r.messages]),
    ]
    return "\n".join(lines)


def _waits(outcome: AdmissionOutcome) -> list[str]:
    """Return a table of when parts of the gangs were admitted: the last ones may wait for others to end."""
    parts = {"half of the gangs": 0.5, "nine tenths": 0.9, "all": 1.0}

    def after(arm: str, part: float) -> float:
        rounds = [r.admitted_after_s for r in outcome.rounds_of(arm)]
        return statistics.median(times[math.ceil(part * len(times)) - 1] for times in rounds)

    rows = (
        f"| {name} | {after(TRAINYARD_ARM, part):.1f} s | {after(MINIMAL_ARM, part):.1f} s |"
        for name, part in parts.items()
    )
    return [f"| admitted after | {TRAINYARD_ARM} | {MINIMAL_ARM} |", "|---|---|---|", *rows]


def _costs(outcome: AdmissionOutcome) -> list[str]:
    """Return a table of the writes by resource and of the CPU time by service; medians over the rounds."""
    arms = (TRAINYARD_ARM, MINIMAL_ARM)

    def medians(of: Callable[[RoundResult], Mapping[str, float]]) -> dict[str, list[float]]:
        names = sorted({name for r in outcome.rounds for name in of(r)})
        return {
            name: [
                statistics.median(of(r).get(name, 0.0) for r in outcome.rounds_of(a)) for a in arms
            ]
            for name in names
        }

    written = medians(lambda r: r.writes)
    used = medians(lambda r: r.cpu_s)
    return [
        f"| per gang | {' | '.join(arms)} |",
        "|---|---|---|",
        *(
            f"| writes of `{name}` | {ours:.3f} | {least:.3f} |"
            for name, (ours, least) in written.items()
        ),
        *(
            f"| CPU ms of {name} | {1000 * ours:.1f} | {1000 * least:.1f} |"
            for name, (ours, least) in used.items()
        ),
    ]


OVER_SHOWN: Final = 3
"""Admissions over quota that the section lists: each names every run of the flavor."""


def storm(outcome: StormOutcome) -> str:
    """Return the section of a preemption storm."""
    size = outcome.size
    kills = ", ".join(f"{k.service} at {k.at:g} s" for k in outcome.kills) or "none"
    reasons = ", ".join(f"{n} {reason}" for reason, n in sorted(outcome.evictions.items()))
    lines = [
        f"{size.nodes} nodes; {size.low} gangs of low priority, then {size.high} of high (seed"
        f" {size.seed}); {_environment()}",
        "",
        "| quantity | measured | required |",
        "|---|---|---|",
        f"| low-priority gangs finished once | {outcome.finished[LOW]} | {size.low} |",
        f"| high-priority gangs finished once | {outcome.finished[HIGH]} | {size.high} |",
        f"| most evictions of one gang | {outcome.most_evictions} | at most {EVICTIONS_MAX} |",
        f"| violations (quota exceeded, partial gangs) | {outcome.violations} | 0 |",
        f"| pods bound just after the eviction of their gang | {outcome.late_pods} |"
        " unbounded: the Job controller deletes them |",
        f"| admitted over quota within {RESTART_S:.0f} s after a restart of Kueue |"
        f" {len(outcome.over_after_restart)} | unbounded: Kueue admits while it still loads its queues |",
        f"| most GPUs admitted at once | {outcome.peak_part:.0%} | at most 100%, those aside |",
        f"| controllers killed | {len(outcome.kills)} | {size.kills} |",
        "",
        f"{outcome.seconds:.0f} s from the first high-priority gang to the last completion. Evictions:"
        f" {reasons or 'none'}; of high-priority gangs: {outcome.evictions_of_high.total()}. Killed: {kills}.",
        *_list("First violations:", outcome.messages),
        *_list(
            "First admitted over quota after a restart of Kueue:",
            outcome.over_after_restart[:OVER_SHOWN],
        ),
    ]
    return "\n".join(lines)


def _list(title: str, lines: Sequence[str]) -> list[str]:
    return ["", title, *(f"- {line}" for line in lines)] if lines else []


def trainer_section(text: str) -> str:
    """Return the section of a trainer benchmark, with machine and library versions."""
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in _LIBRARIES)
    return f"{_machine()}; {versions}.\n\n{text}"


def plain_section(text: str) -> str:
    """Return the section of a calculation, with machine only."""
    return f"{_machine()}.\n\n{text}"


def cluster_section(text: str) -> str:
    """Return the section of a benchmark of a cluster, with machine and versions."""
    return f"{_environment()}\n\n{text}"


def _environment() -> str:
    """Return date, machine and versions of the control plane."""
    versions = ", ".join(f"{name} {_version(module)}" for name, module in _TOOLS.items())
    return f"{_machine()}; {versions}."


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
