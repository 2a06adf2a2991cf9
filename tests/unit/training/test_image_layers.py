"""The image's layers without a container engine; `make soak` runs them, with a package registry."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

ENTRY_POINTS = (
    "training.trainer",
    "training.trainer.launch",
    "training.prepare",
    "training.checkpoint",
    "training.validation",
    "training.drills",
    "training.tracking",
)


def test_pinned_requirements_run_every_entry_point_in_an_empty_prefix(
    tmp_path: Path, full: bool
) -> None:
    if not full:
        pytest.skip("downloads gigabytes: --full")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python"
    pinned = ["--require-hashes", "--only-binary", ":all:", "-r", "training/image/requirements.txt"]
    command = [str(python), "-m", "pip", "install", "-q", "--no-cache-dir", *pinned]
    subprocess.run(command, cwd=ROOT, check=True)
    for package in ("training", "trainyard"):
        (tmp_path / package).symlink_to(ROOT / package)
    for module in ENTRY_POINTS:
        done = subprocess.run(
            [python, "-m", module, "--help"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0 and "usage" in done.stdout.lower(), (module, done.stderr)
