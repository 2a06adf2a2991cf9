"""What a rank loads until its first step: imports are most of the time of a restart."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.paths import PROJECT
from tests.trainer.ranks import DEADLINE_S
from tests.trainer.runs import Trainer
from training.trainer.processes.preload import more_modules

pytestmark = pytest.mark.long(13)

PROGRAM = """
import json, os, pathlib, sys
from training.trainer.__main__ import main
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


@pytest.mark.parametrize(
    ("settings", "modules"),
    [
        ([], []),
        (["blocks.compile=true"], ["torch._dynamo"]),
        (["parallel.shard=2"], ["torch.distributed.fsdp", "torch._dynamo"]),
        (["groups={min: 1, max: 2}"], ["training.trainer.elastic.start"]),
        (["no_such.key=1"], []),
    ],
)
def test_the_fork_server_loads_what_the_configuration_needs(
    trainer: Trainer, settings: list[str], modules: list[str]
) -> None:
    words = [w for one in [f"data.path={trainer.dataset}", *settings] for w in ("--set", one)]
    assert more_modules(["--config", str(trainer.config), *words]) == modules


def test_the_fork_server_loads_the_model_that_a_folder_names(
    trainer: Trainer, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    arguments = ["--config", str(trainer.config), "--set", f"data.path={trainer.dataset}"]
    model = ["--set", f"model={{path: {tmp_path}}}"]
    assert more_modules([*arguments, *model]) == ["transformers.models.gpt2.modeling_gpt2"]
    assert more_modules(["--no-config"]) == []
