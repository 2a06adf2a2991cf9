"""`python -m tools.record_image`: labels of an image become its entry, and its digest reaches stack files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools import record_image
from training import image_capabilities
from training.image_capabilities import ImageCapabilities, capabilities

OLD, NEW = (f"sha256:{digit * 64}" for digit in "12")
REPOSITORY = "registry.example.com/ml/trainer"
LABELS = {
    "dev.trainyard.image.efa": "aws-ofi-nccl 1",
    "dev.trainyard.image.architectures": "sm_80 sm_90",
    "dev.trainyard.image.cuda": "13.2",
    "org.opencontainers.image.revision": "abc",
    "other": "ignored",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    record = tmp_path / record_image.RECORD
    record.parent.mkdir(parents=True)
    record.write_text("# head\n")
    (tmp_path / "labels.json").write_text(json.dumps(LABELS))
    (tmp_path / "Pulumi.dev.yaml").write_text(
        f"# kept\nimages:\n  trainer: {REPOSITORY}@{OLD}  # too\n  other: {REPOSITORY}-x@{OLD}\n"
    )
    return tmp_path


def run(root: Path, digest: str, *options: str) -> int:
    return record_image.main([digest, str(root / "labels.json"), *options], root)


def test_both_sides_of_the_record_agree_on_its_place_and_keys() -> None:
    assert record_image.RECORD == image_capabilities.RECORD
    assert record_image.LABEL == image_capabilities.LABEL
    assert set(record_image.KEYS) == set(ImageCapabilities.__dataclass_fields__)


def test_a_recorded_image_declares_its_labels(root: Path) -> None:
    assert run(root, OLD) == run(root, NEW) == run(root, NEW) == 0
    found = capabilities(f"{REPOSITORY}@{NEW}", root, {})
    wanted = ("sm_80", "sm_90")
    assert found == ImageCapabilities(
        efa="aws-ofi-nccl 1", architectures=wanted, cuda="13.2", commit="abc"
    )
    text = (root / record_image.RECORD).read_text()
    assert text.startswith("# head\n") and text.count(NEW) == text.count(OLD) == 1
    assert capabilities(f"{REPOSITORY}@sha256:{'3' * 64}", root, {}) is None


def test_the_digest_reaches_stack_files_that_name_the_repository(root: Path) -> None:
    before = (root / "Pulumi.dev.yaml").read_text()
    assert run(root, NEW) == 0
    assert (root / "Pulumi.dev.yaml").read_text() == before
    assert run(root, NEW, "--repository", REPOSITORY) == 0
    expected = before.replace(f"trainer: {REPOSITORY}@{OLD}", f"trainer: {REPOSITORY}@{NEW}")
    assert (root / "Pulumi.dev.yaml").read_text() == expected


@pytest.mark.parametrize(
    ("digest", "labels", "reason"),
    [
        ("latest", LABELS, "DIGEST: got 'latest'"),
        (NEW, {"other": "x"}, "LABELS: no label dev.trainyard.image."),
        (NEW, [], "must be a JSON object"),
    ],
)
def test_what_cannot_be_recorded_is_one_line(
    root: Path, digest: str, labels: object, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "labels.json").write_text(json.dumps(labels))
    assert run(root, digest) == 1
    assert reason in capsys.readouterr().err
    assert (root / record_image.RECORD).read_text() == "# head\n"
