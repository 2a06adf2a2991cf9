"""The run files of the examples deploy on the local stack, and each example has a page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import yaml

from infra.config import parse
from sandbox import paths
from sandbox.drill import ELASTIC_RUNS
from tests.golden.example_runs import IMAGE, platform, project_in, stack_values
from training import run_files
from training.launchers import LAUNCHERS

EXAMPLES = paths.PROJECT / "examples"


def test_every_run_file_of_the_examples_passes_the_config_check(tmp_path: Path) -> None:
    stack = yaml.safe_load((paths.PROJECT / "Pulumi.local.yaml").read_text())
    files = [f for f in EXAMPLES.glob("*/*.yaml") if "run-file.schema.json" in f.read_text()]
    runs = sorted(f.relative_to(paths.PROJECT).as_posix() for f in files)
    stack["config"]["trainyard:runs"] = runs
    # The first lines of examples/ddp/elastic.yaml and examples/mpirun/README.md say so.
    stack["config"] |= ELASTIC_RUNS
    stack["config"]["trainyard:operators"]["mpiOperator"] = {"provided": True}
    file = tmp_path / "Pulumi.local.yaml"
    file.write_text(yaml.safe_dump(stack))
    command = [sys.executable, "-m", "infra.config"]
    checked = subprocess.run(
        [*command, "check", str(file)],
        cwd=paths.PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (checked.returncode, checked.stderr) == (0, "")
    assert len(runs) >= 10


def test_the_unmodified_script_needs_a_run_file_of_15_lines() -> None:
    text = (EXAMPLES / "ddp" / "plain.yaml").read_text()
    assert len([line for line in text.splitlines() if not line.startswith("#")]) <= 15
    assert "trainyard" not in (EXAMPLES / "ddp" / "plain.py").read_text().partition('"""\n')[2]


def test_every_example_has_a_page_and_a_row_in_the_list() -> None:
    overview = (EXAMPLES / "README.md").read_text()
    for folder in (path for path in EXAMPLES.iterdir() if path.is_dir()):
        assert (folder / "README.md").is_file()
        assert f"({folder.name}/README.md)" in overview


def test_the_horovod_run_file_of_its_page_renders_an_mpijob(tmp_path: Path) -> None:
    page = (EXAMPLES / "mpirun" / "README.md").read_text()
    [text] = [one for one in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "horovod" in one]
    project = project_in(tmp_path)
    (project / "horovod.yaml").write_text(text)
    images = {"horovod": IMAGE}
    found = platform(images=images)
    config = parse(stack_values() | {"images": images})
    [run] = run_files.load(("horovod.yaml",), found, config.images, project)
    objects = LAUNCHERS[run.job_kind].render(run, found)
    [job] = [one for one in objects if one["kind"] == "MPIJob"]
    assert job["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] == 2
    assert job["spec"]["slotsPerWorker"] == 8
