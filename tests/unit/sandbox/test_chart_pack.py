"""Charts of the toolchain as archives in the project's folder."""

from __future__ import annotations

import io
import tarfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from rich.console import Console

from infra.kubernetes.chart_archives import digest_of
from infra.kubernetes.helm import Chart
from sandbox import charts, paths, toolchain

JOBSET = Chart(chart="oci://registry.k8s.io/jobset/charts/jobset", version="0.12.0")


@pytest.fixture
def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The archive of a chart that stands for JobSet's; the project is `tmp_path`."""
    folder = tmp_path / "assets" / "charts" / "jobset"
    for name in ("Chart.yaml", "templates/a.yaml", "tests/a.yaml"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")
    (folder / "crds.yaml").write_bytes(bytes(200_000))
    found = SimpleNamespace(assets={"jobset-chart": tmp_path / "assets"})
    monkeypatch.setattr(toolchain, "ensure", lambda _console, *_names: found)
    monkeypatch.setattr(paths, "PROJECT", tmp_path)
    return charts.pack(folder)


def test_an_archive_has_the_files_of_a_chart_without_its_tests(packed: bytes) -> None:
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as tar:
        assert tar.getnames() == [
            f"jobset/{n}" for n in ("Chart.yaml", "crds.yaml", "templates/a.yaml")
        ]
        crds = tar.extractfile("jobset/crds.yaml")
        assert crds and crds.read() == bytes(200_000)


def test_charts_that_only_the_published_archive_has_are_no_dependencies(tmp_path: Path) -> None:
    chart = tmp_path / "trainer"
    (chart / "charts" / "there").mkdir(parents=True)
    needs = [{"name": "there"}, {"name": "published"}]
    (chart / "Chart.yaml").write_text(yaml.safe_dump({"name": "trainer", "dependencies": needs}))
    with tarfile.open(fileobj=io.BytesIO(charts.pack(chart)), mode="r:gz") as tar:
        about = tar.extractfile("trainer/Chart.yaml")
        assert about
        assert yaml.safe_load(about) == {"name": "trainer", "dependencies": [{"name": "there"}]}


def test_pinned_charts_are_put_into_the_project(packed: bytes, tmp_path: Path) -> None:
    chart = replace(JOBSET, digest=digest_of(packed))
    charts.provide({"jobset": chart, "kueue": replace(JOBSET, digest="")}, Console())
    assert (tmp_path / chart.archive).read_bytes() == packed


def test_another_digest_is_named_and_left_to_the_registry(
    packed: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chart = replace(JOBSET, digest=digest_of(b"upstream's"))
    charts.provide({"jobset": chart}, Console(width=500))
    line = capsys.readouterr().out
    assert line.startswith(f"  charts.jobset.digest: {chart.digest}; ")
    assert digest_of(packed) in line
    assert not (tmp_path / ".charts").exists()
