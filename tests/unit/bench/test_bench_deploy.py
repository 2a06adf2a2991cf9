"""What the benchmark of `pulumi up` makes of its measurements."""

from __future__ import annotations

import pytest

from bench import deploy
from bench.deploy import Deployed, Outcome


def outcome(exponent: float, more: float, cpu: float) -> Outcome:
    found = [
        Deployed(
            backend=backend,
            runs=runs,
            first_s=3.0 * runs**exponent if runs < 1000 else 1.0,  # without checkpoints
            more_s=2.0 if runs == 1 else 2.0 * more,
            more_requests=100.0,
            state_bytes=1024 * runs,
            cpu_s=cpu,
        )
        for backend in deploy.BACKENDS
        for runs in (1000, 1, 10, 100)
    ]
    return Outcome(deployed=found, bare_cpu_s=2.0, load=(0.1, 0.2))


def test_growth_is_the_exponent_of_the_time_without_the_smallest_stack() -> None:
    assert outcome(1.0, 1.0, 2.0).growth("file") == pytest.approx(1.0)
    assert outcome(1.5, 1.0, 2.0).growth("S3") == pytest.approx(1.5)


def test_the_section_says_which_goals_are_met() -> None:
    text = deploy.section(outcome(1.0, 1.1, 2.2))
    assert (
        "not met" not in text and text.count("1.10 times as long as among 1 (goal 1.2: met)") == 2
    )
    bad = deploy.section(outcome(1.2, 3.0, 5.0))
    assert bad.count("not met") == 5
    assert bad.count("the first `up` of 1000 runs wrote the state at its end only") == 2
    assert "| file | 1000 |" in bad and "| S3 | 10 |" in bad


def test_versions_make_runs_of_one_name_different() -> None:
    first, second = deploy._run(1), deploy._run(2)
    assert first["name"] == second["name"] and first["version"] != second["version"]
