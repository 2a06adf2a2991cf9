"""Archives of charts that are pinned by digest: pulled once, verified, and kept in `.charts` of the project.

A release of such a chart names the file, so that an unchanged preview asks no registry. Registries and indexes are
read over HTTPS, with the certificates that Helm trusts (`SSL_CERT_FILE`) and the logins that it stores.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

import pulumi
import yaml
from pulumi.runtime import mocks, settings

from infra.kubernetes.helm import Chart

_TIMEOUT_S: Final = 20.0
_BYTES: Final = 64 * 1024**2
"""Most bytes of an archive or an index."""
_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_CONTENT: Final = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
_OCI: Final = "oci://"


class ChartError(pulumi.RunError):
    """A chart cannot be had, or is not the pinned one; the text is one line."""


@dataclass(frozen=True)
class _Published:
    digest: str
    """sha256:...; empty: an index without digests."""
    url: str
    authorization: str = ""


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def ensure(charts: Iterable[Chart], project: Path) -> None:
    """Pull the archives of those charts that have a digest and are not in the project's folder yet.

    Pulls nothing where the program is only rendered, without an engine.

    Raises:
        ChartError: one cannot be had, or has another digest.
    """
    if isinstance(settings.get_monitor(), mocks.MockMonitor):
        return
    for chart in charts:
        path = project / chart.archive
        if chart.digest and not (path.is_file() and digest_of(path.read_bytes()) == chart.digest):
            keep(chart, _pull(chart), project)


def keep(chart: Chart, content: bytes, project: Path) -> None:
    """Put a chart's archive into the project's folder."""
    path = project / chart.archive
    path.parent.mkdir(exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_bytes(content)
    partial.rename(path)


def published_digest(chart: Chart) -> str:
    """Return the digest to pin, as the chart's registry or index has it now.

    Raises:
        ChartError: it cannot be had.
    """
    found = _published(chart)
    return found.digest or digest_of(_get(chart, found.url))


def _pull(chart: Chart) -> bytes:
    found = _published(chart)
    content = b""
    if found.digest in ("", chart.digest):
        content = _get(chart, found.url, authorization=found.authorization)
        found = _Published(digest_of(content), found.url)
    if found.digest != chart.digest:
        raise _error(
            chart,
            f"{found.url} has digest {found.digest}, not {chart.digest}",
            "it must be the pinned one",
            "find out who changed it before you pin it",
        )
    return content


def _published(chart: Chart) -> _Published:
    if chart.chart.startswith(_OCI):
        return _in_registry(chart)
    return _in_index(chart)


def _in_registry(chart: Chart) -> _Published:
    host, _, repository = chart.chart.removeprefix(_OCI).partition("/")
    base = f"https://{host}/v2/{repository}"
    url = f"{base}/manifests/{chart.version.replace('+', '_')}"
    authorization = ""
    try:
        text = _read(url, _MANIFEST)
    except urllib.error.HTTPError as error:
        if error.code != 401:
            raise _failed(chart, url, error) from error
        authorization = _authorization(chart, host, error.headers.get("WWW-Authenticate", ""))
        text = _get(chart, url, _MANIFEST, authorization)
    except (OSError, HTTPException) as error:
        raise _failed(chart, url, error) from error
    try:
        layers = json.loads(text)["layers"]
        (digest,) = (str(one["digest"]) for one in layers if one["mediaType"] == _CONTENT)
    except (ValueError, KeyError, TypeError) as error:
        raise _error(
            chart, f"{url} is not a chart", "must be one", "correct the address"
        ) from error
    return _Published(digest, f"{base}/blobs/{digest}", authorization)


def _authorization(chart: Chart, host: str, challenge: str) -> str:
    """Return the header that a registry asks for: a token (anonymous without a stored login), or the login."""
    login = _stored_login(host)
    scheme, _, rest = challenge.partition(" ")
    asked = dict(re.findall(r'(\w+)="([^"]*)"', rest))
    if scheme.lower() == "bearer" and asked.get("realm", "").startswith("https://"):
        query = {key: asked[key] for key in ("service", "scope") if key in asked}
        url = f"{asked['realm']}?{urllib.parse.urlencode(query)}"
        try:
            answer = json.loads(_get(chart, url, authorization=login))
            return f"Bearer {answer.get('token') or answer['access_token']}"
        except (ValueError, KeyError, AttributeError) as error:
            raise _failed(chart, url, ValueError("no token in its answer")) from error
    if scheme.lower() == "basic" and login:
        return login
    raise _error(
        chart, f"{host} requires a login", "must be stored", f"run `helm registry login {host}`"
    )


def _stored_login(host: str) -> str:
    """Return the header of the login that Helm or Docker has stored; empty without one."""
    helm = os.environ.get("HELM_REGISTRY_CONFIG", "~/.config/helm/registry/config.json")
    docker = os.environ.get("DOCKER_CONFIG", "~/.docker")
    for file in (Path(helm), Path(docker) / "config.json"):
        try:
            return f"Basic {json.loads(file.expanduser().read_text())['auths'][host]['auth']}"
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return ""


def _in_index(chart: Chart) -> _Published:
    url = f"{chart.repository}/index.yaml"
    try:
        index = yaml.load(_get(chart, url), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        entries = index["entries"].get(chart.chart, [])
        found = [one for one in entries if _same_version(one["version"], chart.version)]
        if not found:
            raise _error(chart, f"{url} has no such chart", "must have it", "check the version")
        digest = found[0].get("digest", "")
        address = urllib.parse.urljoin(f"{chart.repository}/", found[0]["urls"][0])
    except (yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise _error(
            chart, f"{url} is not an index", "must be one", "correct the address"
        ) from error
    return _Published(f"sha256:{digest.removeprefix('sha256:')}" if digest else "", address)


def _same_version(one: Any, other: str) -> bool:
    return str(one).removeprefix("v") == other.removeprefix("v")


def _get(chart: Chart, url: str, accept: str = "*/*", authorization: str = "") -> bytes:
    try:
        return _read(url, accept, authorization)
    except (OSError, ValueError, HTTPException) as error:
        raise _failed(chart, url, error) from error


def _read(url: str, accept: str, authorization: str = "") -> bytes:
    if not url.startswith("https://"):
        raise ValueError("charts are pulled over HTTPS only")
    request = urllib.request.Request(url, headers={"Accept": accept})
    if authorization:
        # A redirect leads to storage, which refuses a second authorization beside the one in its address.
        request.add_unredirected_header("Authorization", authorization)
    trusted = ssl.create_default_context()
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=trusted) as answer:
        content: bytes = answer.read(_BYTES + 1)
    if len(content) > _BYTES:
        raise ValueError(f"more than {_BYTES} bytes")
    return content


def _failed(chart: Chart, url: str, error: Exception) -> ChartError:
    """Return the line for a request that failed."""
    host = urllib.parse.urlsplit(url).netloc
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(error, urllib.error.HTTPError):
        if error.code == 404:
            return _error(chart, f"{url} does not exist", "must exist", "check chart and version")
        what = f"{url} answers {error.code} {error.reason}"
        return _error(chart, what, "must be readable", f"run `helm registry login {host}`")
    if isinstance(reason, ssl.SSLCertVerificationError):
        what = f"the certificate of {host} is not trusted ({reason.verify_message})"
        return _error(chart, what, "must be", "set SSL_CERT_FILE to a file with its CA")
    if isinstance(reason, ssl.SSLError):
        what = f"{host} does not speak TLS ({reason.reason})"
        return _error(chart, what, "charts are pulled over HTTPS only", "give it a certificate")
    what = f"{host} cannot be read ({reason or type(reason).__name__})"
    if chart.digest:
        valid = f"must answer once, or {chart.archive} must be there"
        return _error(chart, what, valid, "try again, or copy that file from another checkout")
    return _error(chart, what, "must answer", "try again")


def _error(chart: Chart, problem: str, valid: str, action: str) -> ChartError:
    where = f"{chart.repository}/{chart.chart}".lstrip("/")
    return ChartError(
        " ".join(f"chart {where} {chart.version}: {problem}; {valid}; {action}".split())
    )
