"""Charts that are pinned by digest: pulled once over TLS, verified, kept; what is refused, in one line."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pulumi.runtime import settings

from infra.cli import mirror
from infra.cli.render import ROOT
from infra.config import add_ons, stack_values
from infra.kubernetes.chart_archives import ChartError, digest_of, ensure, published_digest
from infra.kubernetes.helm import Chart
from sandbox.certificates import CertificateAuthority, Identity
from tests.unit.infra.config_issues import check_issues

ARCHIVE = b"an archive"
DIGEST = digest_of(ARCHIVE)
MANIFEST = "/v2/charts/one/manifests/1.2.3_a"
BLOB = f"/v2/charts/one/blobs/{DIGEST}"
LAYER = {"mediaType": "application/vnd.cncf.helm.chart.content.v1.tar+gzip", "digest": DIGEST}


@dataclass
class Site:
    """A server on loopback. `answers`: status, headers and body by path, or by path and authorization."""

    address: str
    answers: dict[str, tuple[int, dict[str, str], bytes]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def publish(self, path: str, content: bytes | object, authorization: str = "") -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.answers[f"{path} {authorization}".strip()] = (200, {}, body)

    def registry(self) -> Chart:
        """A chart in a registry that gives anybody a token."""
        challenge = f'Bearer realm="https://{self.address}/token",service="s",scope="pull"'
        for path in (MANIFEST, BLOB):
            self.answers[path] = (401, {"WWW-Authenticate": challenge}, b"")
        self.publish("/token?service=s&scope=pull", {"token": "t"})
        self.publish(MANIFEST, {"layers": [LAYER]}, "Bearer t")
        # As in registries whose blobs are in object storage.
        moved = {"Location": f"https://{self.address}/storage"}
        self.answers[f"{BLOB} Bearer t"] = (307, moved, b"")
        self.publish("/storage", ARCHIVE)
        return Chart(chart=f"oci://{self.address}/charts/one", version="1.2.3+a", digest=DIGEST)

    def index(self, **entry: Any) -> Chart:
        """A chart in an index."""
        self.publish("/charts/index.yaml", {"entries": {"one": [{"version": "v1", **entry}]}})
        self.publish("/charts/one-1.tgz", ARCHIVE)
        place = f"https://{self.address}/charts"
        return Chart(chart="one", repository=place, version="1", digest=DIGEST)


def served(tls: ssl.SSLContext | None) -> Iterator[Site]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.asked.append(self.path)
            given = self.headers.get("Authorization", "")
            known = found.answers.get(f"{self.path} {given}".strip())
            status, headers, body = known or found.answers.get(self.path, (404, {}, b""))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    found = Site(f"127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield found
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    authority = CertificateAuthority(tmp_path / "pki")
    pair = authority.issue(Identity("site", "site", hosts=("127.0.0.1",)))
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.pair.certificate))
    monkeypatch.setenv("HELM_REGISTRY_CONFIG", str(tmp_path / "logins.json"))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair.certificate, pair.key)
    yield from served(tls)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # A rendering of another test leaves Pulumi's mocks.
    monkeypatch.setattr(settings, "get_monitor", lambda: None)
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def refused(chart: Chart, project: Path) -> str:
    with pytest.raises(ChartError) as error:
        ensure([chart], project)
    assert not list(project.glob("**/*.tgz*"))
    line = str(error.value)
    assert "\n" not in line and line.count("; ") == 2
    return line


def test_a_chart_of_a_registry_is_pulled_once(site: Site, project: Path) -> None:
    chart = site.registry()
    ensure([chart], project)
    assert (project / chart.archive).read_bytes() == ARCHIVE
    assert chart.archive == f"./.charts/one-1.2.3+a-{DIGEST[7:19]}.tgz"
    site.asked.clear()
    ensure([chart], project)
    assert site.asked == []
    (project / chart.archive).write_bytes(ARCHIVE[:3])
    ensure([chart], project)
    assert (project / chart.archive).read_bytes() == ARCHIVE


def test_a_stored_login_is_used(site: Site, project: Path, tmp_path: Path) -> None:
    chart = site.registry()
    for path in (MANIFEST, BLOB):
        site.answers[path] = (401, {"WWW-Authenticate": 'Basic realm="r"'}, b"")
    line = refused(chart, project)
    assert f"{site.address} requires a login" in line
    assert line.endswith(f"run `helm registry login {site.address}`")
    site.publish(MANIFEST, {"layers": [LAYER]}, "Basic secret")
    site.publish(BLOB, ARCHIVE, "Basic secret")
    logins = {"auths": {site.address: {"auth": "secret"}}}
    (tmp_path / "logins.json").write_text(json.dumps(logins))
    ensure([chart], project)


@pytest.mark.parametrize("digest", ["", DIGEST[7:]])
def test_a_chart_of_an_index_is_pulled(site: Site, project: Path, digest: str) -> None:
    chart = site.index(urls=["one-1.tgz"], digest=digest)
    ensure([chart], project)
    assert (project / chart.archive).read_bytes() == ARCHIVE
    assert published_digest(chart) == DIGEST


def test_another_digest_is_refused(site: Site, project: Path) -> None:
    other = digest_of(b"another archive")
    chart = site.registry()
    site.publish(MANIFEST, {"layers": [LAYER | {"digest": other}]}, "Bearer t")
    assert f"has digest {other}, not {DIGEST}" in refused(chart, project)
    site.registry()
    site.publish("/storage", b"another archive")
    assert f"has digest {other}, not {DIGEST}" in refused(chart, project)


def test_a_missing_chart_is_reported(site: Site, project: Path) -> None:
    chart = site.registry()
    del site.answers[f"{MANIFEST} Bearer t"]
    site.answers[MANIFEST] = (404, {}, b"")
    assert f"{MANIFEST} does not exist" in refused(chart, project)
    chart = site.index(urls=["one-1.tgz"])
    site.publish("/charts/index.yaml", {"entries": {"one": [{"version": "2"}]}})
    assert "/charts/index.yaml has no such chart" in refused(chart, project)
    site.publish("/charts/index.yaml", b"<html>")
    assert "/charts/index.yaml is not an index" in refused(chart, project)


def test_an_image_is_not_a_chart(site: Site, project: Path) -> None:
    chart = site.registry()
    site.publish(MANIFEST, {"layers": [{"mediaType": "image", "digest": DIGEST}]}, "Bearer t")
    assert f"{MANIFEST} is not a chart" in refused(chart, project)


def test_what_a_registry_answers_is_reported(site: Site, project: Path) -> None:
    chart = site.registry()
    site.answers[f"{MANIFEST} Bearer t"] = (403, {}, b"")
    assert f"{MANIFEST} answers 403 Forbidden" in refused(chart, project)


def test_a_registry_that_does_not_answer_is_reported(project: Path) -> None:
    chart = Chart(chart="oci://127.0.0.1:1/one", version="1", digest=DIGEST)
    line = refused(chart, project)
    assert line.startswith("chart oci://127.0.0.1:1/one 1: 127.0.0.1:1 cannot be read (")
    assert f"or {chart.archive} must be there" in line


def test_a_certificate_of_an_unknown_authority_is_refused(
    site: Site, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    line = refused(site.registry(), project)
    assert f"the certificate of {site.address} is not trusted" in line
    assert line.endswith("set SSL_CERT_FILE to a file with its CA")


def local(**charts: object) -> dict[str, Any]:
    operators = {"kueue": {"provided": False}, "jobset": {"provided": True}}
    return stack_values(ROOT / "Pulumi.local.yaml") | {"operators": operators, "charts": charts}


@pytest.mark.parametrize("name", ["jobset", "runPage", "nothing"])
def test_settings_of_a_chart_that_is_not_installed_are_rejected(name: str) -> None:
    check_issues("add-ons", f"chart of {name}", local(**{name: {}}), f"charts.{name}: chart-unused")


def test_a_digest_must_be_one() -> None:
    values = local(kueue={"digest": "0.19.2"})
    check_issues("add-ons", "chart digest", values, "charts.kueue.digest: chart-digest")


def test_the_command_prints_what_to_pin(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    chart = site.registry()
    monkeypatch.setattr(add_ons, "chart", lambda _config, _name: chart)
    file = tmp_path / "Pulumi.some.yaml"
    text = (ROOT / "Pulumi.local.yaml").read_text()
    file.write_text(text.replace("{provided: true}", "{provided: false}"))
    assert mirror.main([str(file), "--digests"]) == 0
    expected = ["trainyard:charts:", *(f"  {n}: {{digest: {DIGEST}}}" for n in ("kueue", "jobset"))]
    assert capsys.readouterr().out.splitlines() == expected
    site.answers.clear()
    assert mirror.main([str(file), "--digests"]) == 1
    assert "error: chart oci://" in capsys.readouterr().err
