"""What a rank loads until its first step: imports are most of the time of a restart."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox.paths import PROJECT
from tests.trainer.ranks import DEADLINE_S
from tests.trainer.runs import Trainer

pytestmark = pytest.mark.long(13)

PROGRAM = """
import json, os, pathlib, sys
from trainer.__main__ import main
code = main()
found = sorted(name for name in sys.modules if name.count(".") < 3)
pathlib.Path(os.environ["FOUND"], os.environ["RANK"]).write_text(json.dumps([code, found]))
"""
HEAVY = {
    "sympy",
    "torch._dynamo",
    "torch._inductor",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "transformers",
}


def test_a_run_without_shards_loads_neither_transformers_nor_a_compiler(
    trainer: Trainer, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
    settings = [f"data.path={trainer.dataset}", "steps=4"]
    subprocess.run(
        [
            *(*torchrun, str(program), "--config", str(trainer.config)),
            *("--run-dir", str(tmp_path / "run")),
            *(word for one in settings for word in ("--set", one)),
        ],
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(PROJECT),
            "FOUND": str(tmp_path),
            "OMP_NUM_THREADS": "1",
        },
        cwd=tmp_path,
        timeout=DEADLINE_S,
        check=True,
    )
    for rank in "01":
        code, found = json.loads((tmp_path / rank).read_text())
        assert code == 0
        assert HEAVY & set(found) == set()


def test_ranks_wait_for_each_other_longer_until_the_first_step_is_done(
    trainer: Trainer, tmp_path: Path
) -> None:
    """The limits in order, between the steps; of a divided model, whose groups torch would give others."""
    noted = tmp_path / "limits"

    def hook(rank: int) -> None:
        from torch import distributed as dist

        from trainer import loop

        def note(owner: Any, name: str) -> None:
            plain = getattr(owner, name)

            def noting(*arguments: Any, **named: Any) -> Any:
                limit = named.get("timeout") or arguments[0]
                with noted.open("a") as file:
                    file.write(f"{name} {limit.total_seconds():.0f}\n")
                return plain(*arguments, **named)

            pytest.MonkeyPatch().setattr(owner, name, noting)

        def step(run: Any, *, plain: Any = loop.train_step) -> Any:
            with noted.open("a") as file:
                file.write("step\n")
            return plain(run)

        if rank == 0:
            note(dist, "init_process_group")
            note(dist, "set_timeout")
            pytest.MonkeyPatch().setattr(loop, "train_step", step)

    settings = ("steps=5", "parallel.shard=2", "start_timeout_s=300", "collective_timeout_s=100")
    assert trainer.run("run", *settings, hook=hook) == [0, 0]
    before, after = noted.read_text().split("step\n", 1)
    names = [line.split() for line in before.splitlines()]
    assert {limit for _, limit in names} == {"300"}
    assert {name for name, _ in names} == {"init_process_group", "set_timeout"}
    assert set(after.splitlines()) == {"set_timeout 100", "step"}
    # One more: the group of the library's checkpoints, made when it looks for one.
    assert after.count("set_timeout") == before.count("set_timeout") + 1 >= 3
