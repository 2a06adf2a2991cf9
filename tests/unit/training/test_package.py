"""The library in the wheel that this repository builds: complete, and importable without the rest."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
LIBRARY = ROOT / "trainyard"


def test_the_library_of_the_wheel_needs_nothing_of_the_command(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for file in ("pyproject.toml", "setup.py"):
        shutil.copy(ROOT / file, project)
    shutil.copytree(LIBRARY, project / "trainyard", ignore=shutil.ignore_patterns("__pycache__"))
    for other in ("infra", "ops", "trainer", "training"):
        (project / other).mkdir()
        (project / other / "__init__.py").touch()
    (project / "__main__.py").touch()
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-build-isolation",
        "--no-deps",
        "--no-index",
    ]
    made = subprocess.run(
        [*build, "--wheel-dir", str(tmp_path), "."], cwd=project, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stdout + made.stderr
    [wheel] = tmp_path.glob("trainyard-*-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0].partition("-")[0] for name in names}
    assert tops == {"trainyard", "trainyard_cli"}
    wanted = {"trainyard/contract.py", "trainyard/py.typed", "trainyard/adapters/torchrun.bash"}
    assert wanted <= set(names)
    check = "import sys; from trainyard import contract; print(contract.__file__, 'training' in sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(wheel)!r}); {check}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split() == [f"{wheel}/trainyard/contract.py", "False"]


def test_the_library_is_written_for_python_3_10() -> None:
    for path in LIBRARY.rglob("*.py"):
        ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=(3, 10))
