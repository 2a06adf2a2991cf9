"""A registry of charts on loopback: distribution's, with a certificate of the sandbox's CA, or without TLS."""

from __future__ import annotations

import http.client
import json
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import yaml
from rich.console import Console

from infra.kubernetes.chart_archives import digest_of
from infra.kubernetes.helm import Chart
from sandbox import toolchain
from sandbox.certificates import CertificateAuthority, Identity
from sandbox.ports import LOOPBACK, free_port
from tests.sandbox.node_kit import until

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.cncf.helm.config.v1+json"
_CONTENT = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"


@dataclass
class Registry:
    """A registry that runs until `end`."""

    port: int
    process: subprocess.Popen[bytes]
    tls: ssl.SSLContext | None
    place: str = field(init=False)

    def __post_init__(self) -> None:
        self.place = f"{LOOPBACK}:{self.port}"

    def push(self, name: str, version: str, archive: bytes) -> Chart:
        """Push a chart as `helm push` does, and return it with its digest."""
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
