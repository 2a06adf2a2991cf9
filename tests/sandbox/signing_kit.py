"""A registry, signing keys and policy-controller beside the cluster, all as processes."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import sys
import tarfile
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import boto3

from infra.addons.registry import ADD_ONS
from infra.sections.signatures import SignaturesConfig
from sandbox import paths
from sandbox.ports import LOOPBACK, free_port
from sandbox.process import spawn
from sandbox.service_config import documents
from sandbox.toolchain import Toolchain
from tests.sandbox.conftest import Cluster
from tests.sandbox.node_kit import until

Json = dict[str, Any]

NAMESPACE: Final = ADD_ONS["policyController"].namespace
READY_S: Final = 240.0
COMMAND_S: Final = 240
_CREDENTIALS: Final = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_REGION": "us-east-1",
}
END_S: Final = 30.0
HOOKS: Final = (
    "mutatingwebhookconfiguration/policy.sigstore.dev",
    "mutatingwebhookconfiguration/defaulting.clusterimagepolicy.sigstore.dev",
    "validatingwebhookconfiguration/policy.sigstore.dev",
    "validatingwebhookconfiguration/validating.clusterimagepolicy.sigstore.dev",
)


@dataclass(frozen=True)
class Registry:
    """A registry with one repository, and the keys that sign its images. `home`: for the tools' own files."""

    tools: Toolchain
    port: int
    kms: str
    home: Path

    @property
    def repository(self) -> str:
        return f"{LOOPBACK}:{self.port}/trainer"

    def new_image(self, name: str) -> str:
        layer = self.home / f"{name}.tar"
        (self.home / name).write_text(name)
        with tarfile.open(layer, "w") as archive:
            archive.add(self.home / name, arcname=name)
        tag = f"{self.repository}:{name}"
        return self._run("crane", "append", "-f", str(layer), "-t", tag).strip().partition("@")[2]

    def new_key(self) -> SignaturesConfig:
        made = self._kms().create_key(KeySpec="ECC_NIST_P256", KeyUsage="SIGN_VERIFY")
        return SignaturesConfig(kms_key=made["KeyMetadata"]["Arn"])

    def sign(self, digest: str, key: SignaturesConfig) -> None:
        """Sign an image, without an entry in a public log.

        In the steps of `cosign sign`: moto signs the hash of what is given as a hash already.
        """
        image = f"{self.repository}@{digest}"
        payload, signature = (
            self.home / f"{digest[-12:]}.{part}" for part in ("json", "signature")
        )
        payload.write_text(self._run("cosign", "generate", image))
        signed = self._kms().sign(
            KeyId=key.kms_key,
            Message=payload.read_bytes(),
            MessageType="RAW",
            SigningAlgorithm="ECDSA_SHA_256",
        )
        signature.write_bytes(base64.b64encode(signed["Signature"]))
        files = (f"--payload={payload}", f"--signature={signature}")
        self._run("cosign", "attach", "signature", *files, image)

    def _kms(self) -> Any:
        return boto3.client(
            "kms",
            endpoint_url=self.kms,
            region_name=_CREDENTIALS["AWS_REGION"],
            aws_access_key_id=_CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=_CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        )

    def _run(self, program: str, *args: str) -> str:
        done = subprocess.run(
            [str(self.tools.binaries[program]), *args],
            env=environment(self.home, self.kms),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def environment(home: Path, kms: str) -> dict[str, str]:
    """Environment of a program that uses KMS: the sandbox's, and nothing of the caller's."""
    return {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "AWS_ENDPOINT_URL_KMS": kms,
        **_CREDENTIALS,
    }


@contextlib.contextmanager
def server(argv: Sequence[str], env: Mapping[str, str], log: Path) -> Iterator[Callable[[], bool]]:
    """Run a server until the end of the block; yield whether it still runs."""
    running = spawn(list(argv), dict(env), log.parent, log)
    try:
        yield lambda: running.alive
    except BaseException:
        print(log.read_text()[-8000:])
        raise
    finally:
        running.end(END_S)


@contextlib.contextmanager
def registry(cluster: Cluster, tools: Toolchain, home: Path) -> Iterator[Registry]:
    """An empty registry, and the sandbox's KMS."""
    port, log = free_port(), home / "registry.log"
    argv = [str(tools.binaries["crane"]), "registry", "serve", f"--address={LOOPBACK}:{port}"]
    kms = f"http://{LOOPBACK}:{cluster.settings.ports['s3']}"

    def ready() -> bool:
        assert runs(), log.read_text()
        try:
            urllib.request.urlopen(f"http://{LOOPBACK}:{port}/v2/", timeout=5).close()
        except OSError:
            return False
        return True

    with server(argv, environment(home, kms), log) as runs:
        until(ready, "the registry answers", READY_S, every_s=0.2)
        yield Registry(tools, port, kms, home)


def install(cluster: Cluster, tools: Toolchain, webhook: Json, port: int) -> list[Json]:
    """Create what the chart installs, as the module's files have it; return it.

    `webhook`: values of the chart. The webhooks' Service leads to `port` of this machine.
    """
    folder = tools.assets["policy-controller"] / "config"
    files = sorted(path for path in folder.glob("[1-5]*.yaml")) + sorted(folder.glob("config-*"))
    objects = [_changed(one, webhook, port) for path in files for one in documents(path)]
    cluster.apply(*objects)
    return objects


def _changed(one: Json, webhook: Json, port: int) -> Json:
    name = one["metadata"]["name"]
    if one["kind"] == "Service":
        # The API server resolves it to its name, which needs no pod.
        one["spec"] = {"type": "ExternalName", "externalName": LOOPBACK}
    if converts := one.get("spec", {}).get("conversion", {}).get("webhook"):
        converts["clientConfig"]["service"]["port"] = port
    for hook in one.get("webhooks", []):
        hook["clientConfig"]["service"]["port"] = port
        if name == "policy.sigstore.dev":
            hook["namespaceSelector"] = webhook["namespaceSelector"]
            hook["failurePolicy"] = webhook["failurePolicy"]
    if name == "config-policy-controller":
        one["data"] = webhook["configData"]
    return one


@contextlib.contextmanager
def controller(
    cluster: Cluster, tools: Toolchain, images: Registry, webhook: Json, port: int
) -> Iterator[None]:
    """policy-controller with the rights of its account; it reaches the API server, KMS and the registry only."""
    home = images.home
    ports = cluster.settings.ports
    config = cluster.kubeconfig_as(home / "kubeconfig", "webhook", NAMESPACE)
    log = home / "policy-controller.log"
    config.chmod(0o600)
    argv = [
        *(sys.executable, "-m", "tests.sandbox.isolated", f"--sockets={home / 'sockets'}"),
        *(f"--visible={home}", f"--publish={port}=8443"),
        *(f"--reach={one}" for one in (ports["apiserver"], ports["s3"], images.port)),
        *("--", str(tools.binaries["policy-controller"])),
        *(f"--{name}={value}" for name, value in webhook.get("extraArgs", {}).items()),
    ]
    env = environment(Path("/tmp"), images.kms) | {
        "PYTHONPATH": str(paths.PROJECT),
        "KUBECONFIG": str(config),
        "SYSTEM_NAMESPACE": NAMESPACE,
        "CONFIG_LOGGING_NAME": "config-logging",
        "METRICS_DOMAIN": "sigstore.dev/policy",
        "WEBHOOK_NAME": "webhook",
    }
    with server(argv, env, log) as runs:

        def ready() -> bool:
            assert runs(), log.read_text()[-4000:]
            found = json.loads(cluster.kubectl("get", *HOOKS, "-o", "json"))["items"]
            return all(
                hook["clientConfig"].get("caBundle") for one in found for hook in one["webhooks"]
            )

        until(ready, "policy-controller has configured its webhooks", READY_S, every_s=0.5)
        yield


def remove(cluster: Cluster, objects: Sequence[Json]) -> None:
    """Delete what `install` created, webhooks first: nothing answers them any more."""
    cluster.kubectl("delete", "--ignore-not-found", *HOOKS)
    cluster.delete(*reversed(objects))
