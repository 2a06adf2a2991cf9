"""The trainer's image without a builder: its packages from their hashes, its files, its programs.

Packages are installed by the commands of the Dockerfile into an empty folder, from the index that pip uses here;
what apt installs, the libraries for EFA and the user are left to the workflow `image`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.trainer import dockerfiles
from tests.trainer.dockerfiles import ROOT, Stage
from tools import record_image
from training import image_capabilities

pytestmark = pytest.mark.timeout(3600)

INSTALL_S = 2400
PROGRAM_S = 300
PROGRAMS = (
    *("trainer", "trainyard.launch", "trainer.prepare", "trainer.prepare.wait"),
    *("trainer.validation", "trainer.drills", "trainer.weights"),
    "trainer.results",
    *("trainer.checkpoint", "trainyard.tracking"),
)
"""Modules that pods run, or that a page names for a shell in one."""
_INDEX = ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "SSL_CERT_FILE")
DIGEST = "sha256:" + "0" * 64


@dataclass(frozen=True)
class Built:
    """The folder that stands for the image's root, and its stages."""

    root: Path
    stages: Mapping[str, Stage]

    def path(self, inside: str) -> Path:
        """An absolute path of the image, here."""
        return self.root / inside.lstrip("/")

    def run(self, *argv: str, cwd: str = "/", timeout_s: float = PROGRAM_S) -> str:
        """Run a program with the image's environment only."""
        env = {name: self._here(value) for name, value in self.stages["image"].pairs("ENV").items()}
        env["PATH"] = env["PATH"].replace("$PATH", os.defpath)
        # How this machine reaches the index.
        env |= {
            name: value for name, value in os.environ.items() if name in _INDEX or "PIP_" in name
        }
        done = subprocess.run(
            [self._here(word) for word in argv],
            cwd=self.path(cwd),
            env=env | {"HOME": str(self.root)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0, f"{shlex.join(argv)}\n{done.stdout}{done.stderr}"
        return done.stdout

    def _here(self, text: str) -> str:
        """Replace folders of the image; the base image's python is the one that runs this."""
        return re.sub(r"(?<![\w.}])/(opt/trainer|headers)\b", lambda m: str(self.path(m[0])), text)

    def copy(self, stage: str) -> None:
        """Carry out what a stage copies from the repository."""
        files = dockerfiles.context()
        for one in self.stages[stage].copies():
            for source, target in () if one.stage else dockerfiles.copied(one, files).items():
                to = self.path(target)
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / source, to)


def install(built: Built, stage: str) -> None:
    """Run a stage's commands of Python: venv and pip, in the folder that stands for the root."""
    pip = ("/opt/trainer/bin/pip", "pip")
    for command in built.stages[stage].commands():
        words = shlex.split(command)
        if words[:3] == ["python", "-m", "venv"]:
            built.run(sys.executable, *words[1:])
        elif words[:2] in ([name, "install"] for name in pip):
            program = (words[0],) if words[0] in pip[:1] else (sys.executable, "-m", "pip")
            built.run(*program, *words[1:], timeout_s=INSTALL_S)


@pytest.fixture(scope="module")
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    if not request.config.getoption("--full"):
        pytest.skip("--full: installs the packages of the image, 5 GB")
    made = Built(tmp_path_factory.mktemp("image"), stages())
    smallest = "colorama==0.4.6"
    tried = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-cache-dir"]
    found = subprocess.run(
        [*tried, "-d", str(made.root / "tried"), smallest],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=INSTALL_S,
        check=False,
    )
    if found.returncode:
        pytest.skip(f"no package index: {found.stderr.strip().splitlines()[-1]}")
    for stage in ("libraries", "efa", "image"):
        made.copy(stage)
        install(made, stage)
    return made


def stages() -> dict[str, Stage]:
    return dockerfiles.stages(dockerfiles.DOCKERFILE.read_text())


def test_every_stage_is_understood() -> None:
    found = stages()
    assert list(found) == ["libraries", "efa", "image"]
    assert all(re.search(r":3\.11-.*@sha256:[0-9a-f]{64}$", one.base) for one in found.values())
    for stage in found.values():
        assert {copy.stage for copy in stage.copies()} <= {"", "libraries", "efa"}
    pips = [c for stage in found.values() for c in stage.commands() if "pip install" in c]
    assert len(pips) == 2
    assert all("--require-hashes --only-binary :all:" in one for one in pips)


def test_the_builder_gets_what_the_stages_copy_and_nothing_that_deploys_runs() -> None:
    files = dockerfiles.context()
    sent = {
        target
        for stage in stages().values()
        for copy in stage.copies()
        if not copy.stage
        for target in dockerfiles.copied(copy, files).values()
    }
    assert "/workspace/trainer/__main__.py" in sent
    assert "/workspace/trainyard/launch.py" in sent
    assert not [path for path in sent if path.endswith(".pyc")]
    assert not [
        path for path in files if not path.startswith(("trainer/", "trainyard/", "training/image/"))
    ]


def test_every_module_of_the_image_imports_there(built: Built) -> None:
    program = """
import importlib, json, pkgutil, sys
failed = {}
for package in ("trainer", "trainyard"):
    for one in pkgutil.walk_packages([package], package + "."):
        if not one.name.startswith("trainyard.adapters.") and not one.name.endswith("__main__"):
            try:
                importlib.import_module(one.name)
            except Exception as error:
                failed[one.name] = repr(error)
print(json.dumps(failed))
"""
    done = built.run("/opt/trainer/bin/python", "-W", "ignore", "-c", program, cwd="/workspace")
    assert json.loads(done.splitlines()[-1]) == {}


@pytest.mark.parametrize("module", PROGRAMS)
def test_the_programs_of_pods_start(built: Built, module: str) -> None:
    done = built.run("/opt/trainer/bin/python", "-m", module, "--help", cwd="/workspace")
    assert "usage" in done.lower()


def test_the_image_s_own_checks_of_python_pass(built: Built) -> None:
    """What RUN does with Python after the files are there."""
    after = [c for c in built.stages["image"].commands() if c.startswith("python ")]
    assert len(after) == 2
    for command in after:
        _, *words = shlex.split(command)
        built.run("/opt/trainer/bin/python", *words, cwd="/workspace")


def test_installed_packages_agree_with_each_other(built: Built) -> None:
    assert "No broken requirements" in built.run("/opt/trainer/bin/pip", "check")


def test_the_build_of_efa_finds_headers_and_cuda(built: Built) -> None:
    [mount] = re.findall(
        r"--mount=\S*source=([^,\s]+)", "\n".join(built.stages["efa"].texts("RUN"))
    )
    cuda = built.path(mount)
    assert (cuda / "include/cuda_runtime.h").is_file()
    assert list(cuda.glob("lib/libcudart.so*"))
    assert (built.path("/headers/nvidia/cu13") / "include/nvml.h").is_file()


def test_the_labels_become_the_record_that_submission_reads(built: Built, tmp_path: Path) -> None:
    labels = built.stages["image"].pairs("LABEL")
    record = tmp_path / image_capabilities.RECORD
    record.parent.mkdir(parents=True)
    record.write_text(record_image.with_entry("", DIGEST, labels))
    found = image_capabilities.capabilities(f"image@{DIGEST}", tmp_path, {})
    assert found is not None
    said = built.run(
        *("/opt/trainer/bin/python", "-c"),
        "import torch; print(torch.version.cuda, torch._C._cuda_getArchFlags())",
    )
    assert said.split() == [found.cuda, *found.architectures]
