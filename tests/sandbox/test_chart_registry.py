"""Charts from a real registry over TLS, which by digest is asked once: when it is down, no preview fails."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
import yaml
from rich.console import Console

from infra.addons.registry import ADD_ONS, CHART_SOURCES
from infra.kubernetes import chart_archives
from infra.kubernetes.chart_archives import ChartError, digest_of
from infra.kubernetes.helm import Chart
from sandbox import charts, paths, toolchain
from sandbox.certificates import CertificateAuthority, Identity
from sandbox.ports import LOOPBACK, free_port
from tests.sandbox.node_kit import until
from tests.sandbox.pulumi_project import Project

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.cncf.helm.config.v1+json"
_CONTENT = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"


@dataclass
class Registry:
    port: int
    process: subprocess.Popen[bytes]
    tls: ssl.SSLContext | None
    place: str = field(init=False)

    def __post_init__(self) -> None:
        self.place = f"{LOOPBACK}:{self.port}"

    def push(self, name: str, version: str, archive: bytes) -> Chart:
        about = json.dumps({"name": name, "version": version}).encode()
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": self._blob(name, _CONFIG, about),
            "layers": [self._blob(name, _CONTENT, archive)],
        }
        path, body = f"/v2/charts/{name}/manifests/{version}", json.dumps(manifest).encode()
        self._ask("PUT", path, 201, body, {"Content-Type": _MANIFEST})
        chart = f"oci://{self.place}/charts/{name}"
        return Chart(chart=chart, version=version, digest=digest_of(archive))

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(30)

    def answers(self) -> bool | None:
        """True as soon as the registry serves; fails if it has ended."""
        assert self.process.poll() is None
        try:
            self._ask("GET", "/v2/", 200)
        except OSError:
            return None
        return True

    def _blob(self, name: str, kind: str, content: bytes) -> dict[str, object]:
        digest = digest_of(content)
        begun = self._ask("POST", f"/v2/charts/{name}/blobs/uploads/", 202)
        place = urlsplit(begun.headers["Location"])
        self._ask("PUT", f"{place.path}?{place.query}&digest={digest}", 201, content)
        return {"mediaType": kind, "digest": digest, "size": len(content)}

    def _ask(
        self,
        method: str,
        path: str,
        status: int,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
    ) -> http.client.HTTPResponse:
        connection = (
            http.client.HTTPSConnection(LOOPBACK, self.port, context=self.tls)
            if self.tls
            else http.client.HTTPConnection(LOOPBACK, self.port)
        )
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        assert answer.status == status, text
        return answer


@contextmanager
def registry(folder: Path, pki: Path | None) -> Iterator[Registry]:
    """Run a registry that keeps its data in a folder; `pki`: of the CA, None for plain HTTP."""
    program = toolchain.ensure(Console(force_terminal=False), "distribution").binaries["registry"]
    port, tls = free_port(taken=set()), None
    served: dict[str, object] = {"addr": f"{LOOPBACK}:{port}"}
    if pki:
        authority = CertificateAuthority(pki)
        pair = authority.issue(Identity("registry", "registry", hosts=(LOOPBACK,)))
        served["tls"] = {"certificate": str(pair.certificate), "key": str(pair.key)}
        tls = ssl.create_default_context(cafile=authority.pair.certificate)
    storage = {"filesystem": {"rootdirectory": str(folder / "registry")}}
    file = folder / "registry.yaml"
    file.write_text(yaml.safe_dump({"version": 0.1, "storage": storage, "http": served}))
    with (folder / "registry.log").open("wb") as log:
        process = subprocess.Popen(
            [program, "serve", str(file)],
            env={"OTEL_TRACES_EXPORTER": "none"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    found = Registry(port, process, tls)
    try:
        until(found.answers, "the registry answers")
        yield found
    finally:
        found.end()


if TYPE_CHECKING:
    from tests.sandbox.conftest import Cluster

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(600), pytest.mark.long(60)]

PROGRAM = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(paths.PROJECT)!r})
from infra.kubernetes import chart_archives
from infra.kubernetes.helm import Chart, release

chart = Chart(chart=CHART, version="1.0.0", digest=DIGEST)
chart_archives.ensure([chart], Path.cwd())
release("release", chart, release_name="release", namespace=NAMESPACE, values={{}}, opts=inside)
"""


@pytest.fixture
def served(cluster: Cluster, tmp_path: Path) -> Iterator[Registry]:
    with registry(tmp_path, cluster.state.pki) as found:
        yield found


@pytest.fixture
def project(cluster: Cluster, tmp_path: Path) -> Project:
    folder = tmp_path / "project"
    folder.mkdir()
    authority = str(cluster.state.pki / "ca.crt")
    return Project.create(folder, cluster.env, SSL_CERT_FILE=authority)


def small_chart(folder: Path, value: str = "first") -> bytes:
    """The archive of a chart with one object."""
    chart = folder / "small"
    (chart / "templates").mkdir(parents=True, exist_ok=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: small\nversion: 1.0.0\n")
    (chart / "templates/made.yaml").write_text(
        f"{{apiVersion: v1, kind: ConfigMap, metadata: {{name: made}}, data: {{a: {value}}}}}\n"
    )
    return charts.pack(chart)


def program(chart: Chart, digest: str) -> str:
    return PROGRAM.replace("CHART", repr(chart.chart)).replace("DIGEST", repr(digest))


def made(cluster: Cluster, project: Project) -> str:
    place = ("-n", project.namespace, "-o", "jsonpath={.data.a}")
    return cluster.kubectl("get", "configmap", "made", *place)


def test_an_unchanged_preview_passes_while_the_registry_is_down(
    cluster: Cluster, served: Registry, project: Project, tmp_path: Path
) -> None:
    chart = served.push("small", "1.0.0", small_chart(tmp_path))
    project.write(program(chart, chart.digest))
    project.up()
    assert made(cluster, project) == "first"
    changed = served.push("small", "1.0.0", small_chart(tmp_path, "second"))
    served.end()
    project.succeed("preview", "--expect-no-changes")
    project.up("--expect-no-changes")

    project.write(program(changed, changed.digest))
    text = project.fail("preview")
    assert "Traceback" not in text
    (line,) = {one for one in map(str.strip, text.splitlines()) if one.startswith("error: chart")}
    assert f"error: chart {chart.chart} 1.0.0: {served.place} cannot be read" in line
    assert made(cluster, project) == "first"


def test_a_changed_digest_updates_the_release(
    cluster: Cluster, served: Registry, project: Project, tmp_path: Path
) -> None:
    chart = served.push("small", "1.0.0", small_chart(tmp_path))
    project.write(program(chart, chart.digest))
    project.up()
    changed = served.push("small", "1.0.0", small_chart(tmp_path, "second"))
    # The old digest is in the project's folder; what the registry has by now does not matter.
    project.up("--expect-no-changes")
    project.write(program(changed, changed.digest))
    assert "~ 1 updated" in project.up()
    assert made(cluster, project) == "second"


def test_a_release_without_a_digest_comes_from_the_registry(
    cluster: Cluster, served: Registry, project: Project, tmp_path: Path
) -> None:
    chart = served.push("small", "1.0.0", small_chart(tmp_path))
    project.write(program(chart, ""))
    project.up()
    assert made(cluster, project) == "first"
    served.end()
    assert "connection refused" in project.fail("preview")


@pytest.mark.parametrize("add_on", ["kueue", "jobset"])
def test_charts_of_modules_are_the_same_through_a_registry(
    served: Registry, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, add_on: str
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(cluster.state.pki / "ca.crt"))
    assets = toolchain.ensure(Console(force_terminal=False), f"{add_on}-chart").assets
    folder = assets[f"{add_on}-chart"] / CHART_SOURCES[add_on].path
    archive = charts.pack(folder)
    chart = served.push(add_on, ADD_ONS[add_on].version, archive)
    assert chart_archives.published_digest(chart) == chart.digest
    chart_archives.ensure([chart], tmp_path)
    assert (tmp_path / chart.archive).read_bytes() == archive


def test_a_registry_without_tls_is_refused(tmp_path: Path) -> None:
    with registry(tmp_path, None) as plain:
        chart = plain.push("small", "1.0.0", small_chart(tmp_path))
        with pytest.raises(ChartError, match=f"{plain.place} does not speak TLS"):
            chart_archives.ensure([chart], tmp_path)


def test_an_archive_does_not_depend_on_the_time_and_mode_of_its_files(tmp_path: Path) -> None:
    first = small_chart(tmp_path)
    for file in (tmp_path / "small").rglob("*"):
        os.utime(file, (0, 0))
        file.chmod(0o700)
    assert small_chart(tmp_path) == first
