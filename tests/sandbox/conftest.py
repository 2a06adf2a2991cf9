"""One embedded cluster for all tests of this folder, with its own state folder and ports."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from rich.console import Console

from sandbox import charts, environment, paths, service_config, toolchain
from sandbox import cluster as embedded
from sandbox.certificates import CertificateAuthority, Identity
from sandbox.services import ClusterSettings

if TYPE_CHECKING:
    from tests.sandbox.ops_kit import Live


def as_list(manifests: Iterable[Mapping[str, Any]]) -> str:
    """Return a document of these objects."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)})


@dataclass(frozen=True)
class Cluster:
    """A running cluster. `env`: the environment in which `pulumi` and `kubectl` work on it."""

    settings: ClusterSettings
    env: dict[str, str]

    @property
    def state(self) -> paths.State:
        return self.settings.state

    @property
    def kubeconfig(self) -> Path:
        return self.settings.state.kubeconfig

    def kubectl(self, *args: str, stdin: str | None = None) -> str:
        """Run kubectl and return its stdout; raises ClusterError if it fails."""
        return embedded.kubectl(self.settings, *args, stdin=stdin)

    def apply(self, *manifests: Mapping[str, Any]) -> None:
        """As the platform does: server-side, by the manager that made them."""
        self.kubectl("apply", "--server-side", "-f", "-", stdin=as_list(manifests))

    def delete(self, *manifests: Mapping[str, Any]) -> None:
        """Delete objects and wait until they are gone; a missing one is not an error."""
        options = ("--ignore-not-found", "--timeout=180s", "-f", "-")
        self.kubectl("delete", *options, stdin=as_list(manifests))

    def kubeconfig_of(self, file: Path, user: str, group: str, namespace: str = "") -> Path:
        """Write the kubeconfig of a user with a client certificate; return its path."""
        authority = CertificateAuthority(self.state.pki)
        pair = authority.issue(Identity(f"user-{user}", user, group))
        port = self.settings.ports["apiserver"]
        found = service_config.kubeconfig(port, authority.pair.certificate, pair)
        if namespace:
            found["contexts"][0]["context"]["namespace"] = namespace
        file.write_text(yaml.safe_dump(found))
        return file

    def kubeconfig_as(self, file: Path, account: str, namespace: str) -> Path:
        """Write the kubeconfig of a service account, with a token; return its path."""
        options = ("-n", namespace, "--duration=2h")
        found = yaml.safe_load(self.kubeconfig.read_text())
        token = self.kubectl("create", "token", account, *options).strip()
        found["users"][0]["user"] = {"token": token}
        file.write_text(yaml.safe_dump(found))
        return file


@contextmanager
def started(folder: Path, add_ons: Sequence[str] = charts.QUEUEING) -> Iterator[Cluster]:
    """A cluster in a folder, started by the code behind `make up`, with these add-ons of the local stack."""
    # Monitoring is three processes more; tests/sandbox/test_monitoring.py switches them on for itself.
    own = {"SANDBOX_HOME": str(folder), "SANDBOX_MONITORING": "off"}
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    console = Console(force_terminal=False)
    try:
        settings = embedded.up(toolchain.ensure(console), console.print)
        environment.install(settings)
        charts.install(settings, console, add_ons)
        yield Cluster(settings, os.environ | environment.variables(settings))
    finally:
        os.environ.update(own)
        embedded.down(lambda _: None)
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with started(tmp_path_factory.mktemp("sandbox")) as found:
        yield found


@pytest.fixture(scope="module")
def staged_team(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with the team, the pools and the queue of the module's STAGE; deleted at the end."""
    from tests.sandbox.ops_kit import staged

    with staged(cluster, request.module.STAGE) as ready:
        yield ready


@pytest.fixture
def live(
    request: pytest.FixtureRequest, staged_team: Cluster, capsys: pytest.CaptureFixture[str]
) -> Live:
    """The team of the module's STAGE, and `python -m ops` for it."""
    from tests.sandbox.ops_kit import Live

    return Live(staged_team, capsys, request.module.STAGE)
