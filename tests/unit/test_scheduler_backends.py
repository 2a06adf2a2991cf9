"""Every scheduler has both of its backends, and nothing else branches on which one a stack uses."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import pytest

from infra.domain.scheduler import Scheduler
from infra.queueing.backends import backend
from training.gangs import gang_backend

ROOT: Final = Path(__file__).resolve().parents[2]
_ROOMS: Final = ("infra", "training", "ops", "policies", "sandbox")


@pytest.mark.parametrize("scheduler", Scheduler)
def test_every_scheduler_has_a_platform_and_a_run_backend(scheduler: Scheduler) -> None:
    assert backend(scheduler).scheduler is scheduler
    assert type(gang_backend(scheduler)).__module__.endswith(f".{scheduler.value}")


def test_no_other_module_branches_on_the_scheduler() -> None:
    homes = {
        "infra/domain/scheduler.py",
        *(f"infra/queueing/{scheduler.value}.py" for scheduler in Scheduler),
    }
    found = {
        path.relative_to(ROOT).as_posix()
        for room in _ROOMS
        for path in (ROOT / room).rglob("*.py")
        if ".venv" not in path.parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "Scheduler"
    }
    assert found <= homes
