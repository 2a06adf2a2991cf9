"""The trainer's image: what is in it, and that nothing in it is of an unknown version."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import Any

import torch
import yaml

from tools import record_image
from training import source
from training.image_capabilities import LABEL

ROOT = Path(__file__).resolve().parents[3]
IMAGE = ROOT / "training" / "image"
ADAPTERS = ROOT / "trainyard" / "adapters"
"""Each imports its framework, which users bring."""
DISTRIBUTIONS = {
    "botocore": "boto3",
    "mlflow": "mlflow-skinny",
    "pynvml": "nvidia-ml-py",
    "yaml": "pyyaml",
}
"""Where a module is not called as what brings it."""


def pins(requirements: Path) -> dict[str, str]:
    found = re.findall(r"^([\w.-]+)==([^ ;\\]+)", requirements.read_text(), re.MULTILINE)
    return {name.lower().replace("_", "-"): version for name, version in found}


def third_party(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add(node.module or "")
    tops = {name.partition(".")[0] for name in names}
    return tops - sys.stdlib_module_names - set(source.PACKAGES)


def test_the_image_has_the_versions_that_are_tested_here() -> None:
    ours, theirs = pins(ROOT / "requirements.txt"), pins(IMAGE / "requirements.txt")
    assert len(theirs) > 50
    assert {name: v for name, v in theirs.items() if ours.get(name) != v} == {}


def test_every_package_of_the_image_is_held_by_its_hashes() -> None:
    text = (IMAGE / "requirements.txt").read_text()
    held = re.findall(r"^[\w.-]+==[^\n]*\\\n    --hash=sha256:", text, re.MULTILINE)
    assert len(held) == len(re.findall(r"^\S+==", text, re.MULTILINE))
    assert "--require-hashes --only-binary :all:" in (IMAGE / "Dockerfile").read_text()


def test_all_that_the_trainer_imports_is_asked_for() -> None:
    asked = set((IMAGE / "requirements.in").read_text().split())
    modules = set().union(
        *(
            third_party(path)
            for path in source.files(ROOT)
            if path.suffix == ".py" and path.parent != ADAPTERS
        )
    )
    assert {DISTRIBUTIONS.get(m, m.replace("_", "-")) for m in modules} - asked == set()


def test_both_stages_begin_with_one_base_that_is_pinned_by_digest() -> None:
    text = (IMAGE / "Dockerfile").read_text()
    assert re.search(r"^ARG BASE=[\w./:-]+@sha256:[0-9a-f]{64}$", text, re.MULTILINE)
    assert set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) == {"${BASE}"}


def test_the_image_holds_what_its_digest_stands_for_and_no_more() -> None:
    ignored = (IMAGE / "Dockerfile.dockerignore").read_text().split("\n")
    folders = {line[1:] for line in ignored if line[:1] == "!"}
    assert {name for name in folders if "/" not in name} == set(source.PACKAGES)


def test_the_image_does_not_run_as_root() -> None:
    lines = (IMAGE / "Dockerfile").read_text().splitlines()
    assert [line for line in lines if line.startswith("USER")] == ["USER 1000:1000"]


def test_an_image_is_signed_after_it_was_scanned_and_as_prod_wants_it() -> None:
    path = ROOT / ".github/workflows/image.yml"
    tree: dict[str, Any] = yaml.safe_load(path.read_text())
    steps = tree["jobs"]["image"]["steps"]
    scan = next(n for n, s in enumerate(steps) if "trivy" in s.get("uses", ""))
    sign = next(n for n, s in enumerate(steps) if "cosign sign" in s.get("run", ""))
    assert scan < sign and steps[scan]["with"]["exit-code"] == 1
    prod = yaml.safe_load((ROOT / "Pulumi.prod.yaml").read_text())["config"]
    subject = prod["trainyard:signatures"]["keyless"]["subject"]
    assert f"/.github/workflows/{path.name}@refs/heads/main" in subject


def labels() -> dict[str, str]:
    text = (IMAGE / "Dockerfile").read_text()
    return dict(re.findall(rf'{re.escape(LABEL)}(\w+)="([^"]+)"', text))


def test_the_labels_say_what_the_libraries_are() -> None:
    found = labels()
    assert set(found) == set(record_image.KEYS) - {"commit"}
    assert found["cuda"] == torch.version.cuda
    assert found["architectures"].split() == str(torch._C._cuda_getArchFlags()).split()
    script = (IMAGE / "build-efa.sh").read_text()
    tags = re.findall(r" v([\d.]+) [0-9a-f]{40}$", script, re.MULTILINE)
    assert found["efa"] == f"aws-ofi-nccl {tags[1]}, libfabric {tags[0]}"


def test_headers_for_efa_are_those_of_the_image_s_cuda() -> None:
    versions = set(pins(IMAGE / "requirements-efa.txt").values())
    assert versions == {pins(IMAGE / "requirements.txt")["nvidia-cuda-runtime"]}


def test_the_example_digest_of_the_committed_stacks_has_the_labels_of_the_dockerfile() -> None:
    record = yaml.safe_load((IMAGE / "images.yaml").read_text())
    for stack in ("dev", "prod"):
        images = yaml.safe_load((ROOT / f"Pulumi.{stack}.yaml").read_text())["config"]
        digest = images["trainyard:images"]["trainer"].rpartition("@")[2]
        assert record[digest].keys() >= labels().keys()


def test_a_build_starts_only_for_what_is_in_the_image() -> None:
    tree: dict[Any, Any] = yaml.safe_load((ROOT / ".github/workflows/image.yml").read_text())
    paths = tree[True]["push"]["paths"]  # YAML 1.1 reads `on` as true
    assert [path for path in paths if path[0] == "!"] == ["!training/image/images.yaml"]
    assert {f"{package}/**" for package in source.PACKAGES} <= set(paths)


def test_every_file_that_the_dockerfile_copies_reaches_the_builder() -> None:
    copied = re.findall(r"^COPY (training/image/.*) \S+$", (IMAGE / "Dockerfile").read_text(), re.M)
    names = {name for line in copied for name in line.split()}
    ignored = (IMAGE / "Dockerfile.dockerignore").read_text().split("\n")
    assert names == {line.removeprefix("!") for line in ignored if line.startswith("!training/")}
    assert all((ROOT / name).is_file() for name in names)
