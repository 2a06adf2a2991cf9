"""Programs as `trainyard.launch` starts them: their environment, and what their folder contains."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from training import runtime_archive

pytestmark = pytest.mark.long(20)

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


REPORTING = "import sys, trainyard\ntrainyard.log(step=5, loss=1.0)\n"
NOTICE_TO_ITSELF = """
import os, signal, sys, time, trainyard
trainyard.log(step=5, loss=1.0)
def stop(*_):
    {ending}
signal.signal(signal.SIGTERM, stop)
launcher = open(f"/proc/{{os.getppid()}}/stat").read().rpartition(")")[2].split()[1]
os.kill(int(launcher), signal.SIGTERM)
time.sleep(60)
"""


ON_NOTICE = "on a notice: "


@pytest.mark.parametrize(
    ("ending", "code", "event"),
    [
        ("sys.exit(0)", 0, {"event": "finished", "reason": "done"}),
        ("sys.exit(3)", 3, {"event": "failed", "error": "rank 0 ended with 3"}),
        (f"{ON_NOTICE}sys.exit(0)", 75, {"reason": "preempted", "code": 0}),
        (f"{ON_NOTICE}raise RuntimeError('SIGTERM')", 75, {"reason": "preempted", "code": 1}),
        (f"{ON_NOTICE}trainyard.finished(); sys.exit(0)", 0, {"reason": "done"}),
    ],
)
def test_the_end_of_a_reporting_program_is_recorded_as_what_it_is(
    ending: str, code: int, event: dict[str, object], folder: Path
) -> None:
    own = ending.removeprefix(ON_NOTICE)
    text = NOTICE_TO_ITSELF.format(ending=own) if own != ending else REPORTING + own
    (folder / "train.py").write_text(text)
    run_dir = folder.parent / "run"
    run_dir.mkdir()
    facts = {"TRAINYARD_RUN_ID": "x", "TRAINYARD_RUN_DIR": str(run_dir)}
    done = launch(folder, inherited=facts)
    assert done.returncode == code, done.stderr
    last = json.loads((run_dir / "events.jsonl").read_text().splitlines()[-1])
    assert {"event": "finished", "step": 5, **event}.items() <= last.items()


SAVE = "import os\nopen(os.environ['TRAINYARD_CHECKPOINTS'] + '/a', 'w').close()\n"


@pytest.mark.parametrize(
    ("program", "node", "after_s", "said"),
    [
        ("open('snapshot.pt', 'w').close()\n", 0, 600.0, ["at the end"]),
        ("open('snapshot.pt', 'w').close()\n", 0, 0.0, ["after 0 min", "at the end"]),
        ("open('snapshot.pt', 'w').close()\n", 1, 0.0, []),
        ("raise SystemExit(3)\n", 0, 600.0, []),
        (SAVE, 0, 600.0, []),
    ],
)
def test_an_empty_checkpoint_folder_is_reported_once_while_it_trains_and_at_the_end(
    program: str, node: int, after_s: float, said: list[str], folder: Path, tmp_path: Path
) -> None:
    (folder / "train.py").write_text(program)
    (tmp_path / "sitecustomize.py").write_text(
        f"import trainyard.node\ntrainyard.node.UNSAVED_AFTER_S = {after_s}\n"
    )
    saves = tmp_path / "checkpoints"
    saves.mkdir()
    facts = {"TRAINYARD_CHECKPOINTS": str(saves), "TRAINYARD_NODE_RANK": str(node)}
    path = f"{tmp_path}:{tmp_path / runtime_archive.ZIP_FILE}"
    done = launch(folder, inherited={**facts, "PYTHONPATH": path})
    lines = [line for line in done.stderr.splitlines() if "no file" in line]
    lost = "what a program saves outside of the run's folder is lost with its pods"
    assert lines == [f"launch: no file in {saves} {when}: {lost}" for when in said], done.stderr


def test_an_adapters_last_step_says_that_the_program_is_done(folder: Path) -> None:
    (folder / "train.py").write_text(
        "import os, trainyard\nfrom trainyard.adapters import agreement\n"
        "folder = os.environ['TRAINYARD_EXIT_DIR']\n"
        "for step in (1, 2):\n"
        "    agreement.finish_step(step, lambda _: None, every=0, last=step == 2)\n"
        "    print(step, os.path.exists(folder + '/finished'))\n"
    )
    done = launch(folder, inherited={"TRAINYARD_CHECKPOINTS": str(folder / "checkpoints")})
    assert done.stdout.split("\n")[:2] == ["1 False", "2 True"], done.stderr


@pytest.mark.parametrize(
    ("module", "code"),
    [
        *(("package.train", 0), ("package", 0), ("plain.inner.train", 0), ("json.tool", 0)),
        *(("package.tran", 78), ("plain.inner.tran", 78), ("pakage", 78), ("package.train.x", 78)),
    ],
)
def test_a_module_that_python_does_not_find_is_one_line(
    module: str, code: int, folder: Path
) -> None:
    for name in ("package/__init__", "package/__main__", "package/train", "plain/inner/train"):
        file = folder / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    done = launch(folder, command=["-m", module, "--help"])
    assert done.returncode == code, done.stderr
    lines = [f"launch: command: -m {module}: no such module in {folder} or in the image"]
    assert [one.partition(";")[0] for one in done.stderr.splitlines()] == (lines if code else [])


SHADOWS = """
import json, os, sys
import queue, helper
print(json.dumps([queue.OWN, helper.OWN, os.getcwd(), sys.argv[1:]]))
"""
SHADOWED = ("queue", "uuid", "logging", "argparse", "random", "socketserver", "shlex", "selectors")
"""Modules of the standard library that launchers import, and the rank's parent."""


@pytest.mark.parametrize(
    ("launcher", "words"),
    [
        ("torchrun", ["train.py"]),
        *(("python", words) for words in (["train.py"], ["-m", "train"], ["inner/train.py"])),
    ],
)
def test_modules_of_the_program_do_not_replace_the_standard_library_in_its_launcher(
    launcher: str, words: list[str], folder: Path
) -> None:
    (folder / "inner").mkdir()
    top = words[0] != "inner/train.py"  # not searched before the interpreter has started
    for name in (*SHADOWED, *(["encodings"] if top else [])):
        (folder / f"{name}.py").write_text("OWN = True\n")
    (folder / "helper.py").write_text("OWN = True\n")
    for name in ("train.py", "inner/train.py"):
        (folder / name).write_text(SHADOWS)
    done = launch(folder, launcher, command=[*words, "1"])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [True, True, str(folder), ["1"]]
