"""Programs as `trainyard.launch` starts them: their environment, and what their folder contains."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from training.deployment import runtime_archive

DEADLINE_S = 120
PRINT_ENVIRONMENT = "import json, os, sys\nprint(json.dumps(dict(os.environ)))\n"


def launch(
    folder: Path,
    launcher: str = "python",
    inherited: Mapping[str, str] | None = None,
    **program: object,
) -> subprocess.CompletedProcess[str]:
    """Run the program in `folder` as a pod does: the library in an archive, the code in a source folder."""
    archive = folder.parent / runtime_archive.ZIP_FILE
    archive.write_bytes(runtime_archive.package())
    file = folder.parent / "program.json"
    file.write_text(json.dumps({"launcher": launcher, "command": ["train.py"], **program}))
    env = {k: v for k, v in os.environ.items() if not k.startswith("TRAINYARD_")}
    env |= {"PYTHONPATH": str(archive), "TRAINYARD_SOURCE": str(folder), **(inherited or {})}
    return subprocess.run(
        [sys.executable, "-m", "trainyard.launch", "--program", str(file)],
        cwd=folder.parent,
        env=env,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "code"
    found.mkdir()
    return found


@pytest.mark.parametrize("launcher", ["python", "torchrun"])
def test_the_programs_own_variables_win_over_those_of_the_pod_and_the_image(
    launcher: str, folder: Path
) -> None:
    (folder / "train.py").write_text(PRINT_ENVIRONMENT)
    own = {
        "OMP_NUM_THREADS": "8",
        "PYTHONUNBUFFERED": "",
        "TOKENIZERS_PARALLELISM": "true",
        "CUDA_DEVICE_MAX_CONNECTIONS": "32",
        "PATH": f"/opt/mine:{os.environ['PATH']}",
        "HF_HOME": "{source}/hf",
    }
    of_pod = dict.fromkeys(own, "1") | {"PATH": os.environ["PATH"], "TZ": "UTC"}
    done = launch(folder, launcher, of_pod, env=own)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {name: found[name] for name in own} == own | {"HF_HOME": f"{folder}/hf"}
    assert found["TZ"] == "UTC"
