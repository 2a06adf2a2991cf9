"""The rendered stores and secrets on a real External Secrets with moto's Secrets Manager; `--full` only.

The controller is 0.20.4, the newest that can be built from one Go module; production installs a later chart with
the same API, external-secrets.io/v1. moto enforces no IAM policy for secrets by name, so a proxy between both
decides by the policies that a stack renders, with this project's evaluation of them (tests/aws/iam_evaluation.py).
That AWS decides alike is not shown here, nor is EKS Pod Identity: the controller gets fixed credentials.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from infra.addons.external_secrets import EXTERNAL_SECRETS
from infra.domain import naming
from infra.sections.teams import TeamSecretConfig
from infra.sites.aws import secret_access
from infra.sites.aws.cloud import Aws
from infra.tenancy import secrets, team
from sandbox import paths, toolchain
from sandbox.node.api import ApiError, Client, object_path
from sandbox.ports import LOOPBACK, free_port
from tests.aws import iam_evaluation
from tests.aws.iam_evaluation import Request
from tests.sandbox.conftest import Cluster
from tests.sandbox.node_kit import until

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(1800)]

Json = dict[str, Any]

ACCOUNT, REGION, CLUSTER = "123456789012", "us-east-1", "secrets"
OURS, THEIRS = "es-ours", "es-theirs"
HUB, BUS = f"training/{OURS}/hub", f"training/{THEIRS}/bus"
LISTED = {OURS: (HUB, f"training/{OURS}/missing"), THEIRS: (BUS,)}
"""Names of secrets that the stack file lists for each team."""
CLOUD = Aws(region=REGION, account=ACCOUNT, cluster=CLUSTER, notice_sidecar=False)
NOT_THERE = "Secret does not exist"
"""How the controller words it."""
SYNCED_S = 180.0
_EXTERNAL_SECRETS = f"/apis/{naming.EXTERNAL_SECRETS_API}"


@dataclass
class Account:
    """moto behind a proxy that applies the rendered policies. `roles`: role of each assumed session's key."""

    moto: str
    roles: dict[str, str] = field(default_factory=dict)
    calls: list[tuple[str, str, str, bool]] = field(default_factory=list)
    """Role (empty: the controller's own), action, resource, and whether it was allowed."""

    def request(self, target: str, **body: Any) -> Json:
        """Call Secrets Manager as the account's administrator, past the policies."""
        headers = {
            "X-Amz-Target": f"secretsmanager.{target}",
            "Content-Type": "application/x-amz-json-1.1",
            "Authorization": f"AWS4-HMAC-SHA256 Credential=admin/20260101/{REGION}/secretsmanager/"
            "aws4_request, SignedHeaders=host, Signature=0",
        }
        request = urllib.request.Request(self.moto, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            found: Json = json.load(answer)
        return found

    def put(self, name: str, **values: str) -> None:
        text = json.dumps(values)
        try:
            self.request("PutSecretValue", SecretId=name, SecretString=text)
        except urllib.error.HTTPError:
            self.request("CreateSecret", Name=name, SecretString=text)

    def allows(self, headers: Message, body: str) -> bool:
        """Decide about a request of the controller by the policies of the role whose key signed it."""
        found = re.search(r"Credential=([^/]+)/", headers.get("Authorization", ""))
        role = self.roles.get(found[1], "") if found else ""
        if target := headers.get("X-Amz-Target"):
            action = target.replace(".", ":")
            name = json.loads(body)["SecretId"]
            resource = f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:{name}-a1B2c3"
        else:
            query = urllib.parse.parse_qs(body)
            action, resource = f"sts:{query['Action'][0]}", query["RoleArn"][0]
        request = Request(action=action, resource=resource, account=ACCOUNT)
        allowed = iam_evaluation.allowed(request, identity=[_policy(role)], owner=ACCOUNT)
        self.calls.append((role, action, resource, allowed))
        return allowed


def _policy(role: str) -> Mapping[str, Any]:
    for one, names in LISTED.items():
        if role == secret_access.reader_arn(ACCOUNT, CLUSTER, one):
            return secret_access.read_policy(ACCOUNT, REGION, names)
    readers = [secret_access.reader_arn(ACCOUNT, CLUSTER, one) for one in LISTED]
    return secret_access.assume_role_policy(readers)


@contextmanager
def _proxy(aws: Account) -> Iterator[int]:
    """Port of the proxy in front of moto."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if not aws.allows(self.headers, body.decode()):
                refused = {"__type": "AccessDeniedException", "Message": "not authorized"}
                self._answer(400, json.dumps(refused).encode(), "application/x-amz-json-1.1")
                return
            sent = {name: text for name, text in self.headers.items() if name != "Host"}
            request = urllib.request.Request(aws.moto, body, sent)
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    code, text, kind = answer.status, answer.read(), answer.headers["Content-Type"]
            except urllib.error.HTTPError as error:
                code, text, kind = error.code, error.read(), error.headers["Content-Type"]
            if key := re.search(rb"<AccessKeyId>(\w+)<", text):
                arn = urllib.parse.parse_qs(body.decode())["RoleArn"][0]
                aws.roles[key[1].decode()] = arn
            self._answer(code, text, kind)

        def _answer(self, code: int, text: bytes, kind: str) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_args: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def _controller(cluster: Cluster, binary: Path, folder: Path, aws_port: int) -> Iterator[None]:
    """The controller as the chart's values start it; it listens on every interface, so it gets its own."""
    health = free_port()
    url = f"http://{LOOPBACK}:{aws_port}"
    argv = [
        *(sys.executable, "-m", "tests.sandbox.isolated"),
        *(f"--sockets={folder / 'sockets'}", f"--visible={cluster.state.home}"),
        f"--publish={health}=8082",
        *(f"--reach={port}" for port in (cluster.settings.ports["apiserver"], aws_port)),
        *("--", str(binary), "--live-addr=:8082", "--metrics-addr=:8080"),
        *("--enable-push-secret-reconciler=false", "--enable-cluster-push-secret-reconciler=false"),
        "--enable-cluster-external-secret-reconciler=false",
    ]
    env = os.environ | {
        "KUBECONFIG": str(cluster.kubeconfig),
        "PYTHONPATH": str(paths.PROJECT),
        "AWS_ACCESS_KEY_ID": "controller",
        "AWS_SECRET_ACCESS_KEY": "controller",
        "AWS_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_SECRETSMANAGER_ENDPOINT": url,
        "AWS_STS_ENDPOINT": url,
    }
    log = folder / "external-secrets.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def ready() -> bool:
        assert process.poll() is None, log.read_text()[-4000:]
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{health}/healthz", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    try:
        until(ready, "External Secrets is ready", SYNCED_S, every_s=0.2)
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


@dataclass
class Stores:
    aws: Account
    client: Client
    cluster: Cluster

    def value(self, owner: str, name: str) -> dict[str, str] | None:
        path = object_path("/api/v1", naming.namespace(owner), "secrets", name)
        try:
            found: dict[str, str] = self.client.get(path)["data"]
        except ApiError as error:
            if error.not_found:
                return None
            raise
        return found

    def condition(self, owner: str, name: str) -> tuple[str, str]:
        path = object_path(_EXTERNAL_SECRETS, naming.namespace(owner), "externalsecrets", name)
        conditions = self.client.get(path).get("status", {}).get("conditions", [])
        return next(
            ((c["status"], c["reason"]) for c in conditions if c["type"] == "Ready"), ("", "")
        )

    def await_failed(self, owner: str, name: str, because: str) -> None:
        """Wait until the controller says that it could not fetch a secret, and why."""

        def failed() -> bool:
            events = self.cluster.kubectl(
                *("get", "events", "-n", naming.namespace(owner)),
                *("--field-selector", f"involvedObject.name={name}"),
                *("-o", "jsonpath={.items[*].message}"),
            )
            failed = self.condition(owner, name) == ("False", "SecretSyncedError")
            return failed and because in events

        until(failed, f"{name} has failed: {because}", SYNCED_S, every_s=0.5)


def _of(owner: str, name: str, remote_key: str, *env: str) -> TeamSecretConfig:
    return TeamSecretConfig(name=name, env=env, remote_key=remote_key)


def _manifests(owner: str, *wanted: TeamSecretConfig) -> list[Json]:
    """Return the team's objects as rendered, but refreshed every second instead of every hour."""
    made = secrets.manifests(owner, wanted, CLOUD.secret_store(owner))
    found: list[Json] = json.loads(json.dumps(made))
    for one in found:
        if one["kind"] == "ExternalSecret":
            assert one["spec"]["refreshInterval"] == secrets.REFRESH
            one["spec"]["refreshInterval"] = "1s"
    return found


@pytest.fixture(scope="module")
def stores(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    tools = toolchain.ensure(Console(force_terminal=False), "external-secrets")
    folder = tools.assets["external-secrets"] / "config/crds/bases"
    names = ("externalsecrets", "secretstores", "clustersecretstores")
    files = [*(folder / f"external-secrets.io_{name}.yaml" for name in names)]
    files += sorted(folder.glob("generators.*_generatorstates.yaml"))
    crds = [word for path in files for word in ("-f", str(path))]
    cluster.kubectl("apply", "--server-side", *crds)
    namespaces = [naming.namespace(one) for one in LISTED]
    aws = Account(moto=f"http://{LOOPBACK}:{cluster.settings.ports['s3']}")
    made = Stores(aws, Client(cluster.kubeconfig), cluster)
    try:
        cluster.kubectl("wait", "--for=condition=Established", *crds, "--timeout=180s")
        cluster.apply(*(team.namespace(one) for one in LISTED))
        with (
            _proxy(aws) as port,
            _controller(
                cluster, tools.binaries["external-secrets"], tmp_path_factory.mktemp("es"), port
            ),
        ):
            yield made
            for namespace in namespaces:
                everything = ("externalsecrets,secretstores", "--all", "-n", namespace)
                cluster.kubectl("delete", *everything, "--timeout=180s")
    finally:
        cluster.kubectl("delete", "namespace", *namespaces, "--ignore-not-found", "--wait=false")
        cluster.kubectl("delete", "--ignore-not-found", "--timeout=180s", *crds)


@pytest.mark.full_only
def test_a_teams_secret_is_created_and_follows_a_rotation(stores: Stores) -> None:
    stores.aws.put(HUB, HF_TOKEN="first", OTHER="not wanted")
    stores.cluster.apply(*_manifests(OURS, _of(OURS, "hub", HUB, "HF_TOKEN")))
    until(lambda: stores.value(OURS, "hub") == {"HF_TOKEN": "Zmlyc3Q="}, "the Secret", SYNCED_S)
    stores.aws.put(HUB, HF_TOKEN="second")
    until(lambda: stores.value(OURS, "hub") == {"HF_TOKEN": "c2Vjb25k"}, "the new one", SYNCED_S)
    reader = secret_access.reader_arn(ACCOUNT, CLUSTER, OURS)
    used = {(role, action) for role, action, _, _ in stores.aws.calls}
    assert used == {("", "sts:AssumeRole"), (reader, "secretsmanager:GetSecretValue")}


@pytest.mark.full_only
def test_another_teams_secret_is_refused(stores: Stores) -> None:
    stores.aws.put(BUS, BUS_KEY="secret")
    stores.cluster.apply(*_manifests(THEIRS, _of(THEIRS, "bus", BUS, "BUS_KEY")))
    until(lambda: stores.value(THEIRS, "bus"), "their own Secret", SYNCED_S)
    stores.cluster.apply(*_manifests(OURS, _of(OURS, "stolen", BUS, "BUS_KEY")))
    stores.await_failed(OURS, "stolen", "AccessDenied")
    assert stores.value(OURS, "stolen") is None
    reader = secret_access.reader_arn(ACCOUNT, CLUSTER, OURS)
    refused = {call[0] for call in stores.aws.calls if BUS in call[2] and not call[3]}
    assert refused == {reader}


@pytest.mark.full_only
def test_a_secret_that_is_not_in_the_store_is_reported(stores: Stores) -> None:
    stores.cluster.apply(*_manifests(OURS, _of(OURS, "missing", LISTED[OURS][1], "HF_TOKEN")))
    stores.await_failed(OURS, "missing", NOT_THERE)
    assert stores.value(OURS, "missing") is None


@pytest.mark.full_only
def test_a_variable_that_the_remote_secret_lacks_is_reported_by_name(stores: Stores) -> None:
    stores.aws.put(HUB, HF_TOKEN="first")
    stores.cluster.apply(*_manifests(OURS, _of(OURS, "partly", HUB, "HF_TOKEN", "WANDB_API_KEY")))
    stores.await_failed(OURS, "partly", "WANDB_API_KEY")
    assert stores.value(OURS, "partly") is None


@pytest.mark.full_only
def test_a_secret_that_is_deleted_in_the_store_stays_and_is_reported(stores: Stores) -> None:
    stores.aws.put(HUB, HF_TOKEN="kept")
    stores.cluster.apply(*_manifests(OURS, _of(OURS, "kept", HUB, "HF_TOKEN")))
    until(lambda: stores.value(OURS, "kept"), "the Secret", SYNCED_S)
    stores.aws.request("DeleteSecret", SecretId=HUB, ForceDeleteWithoutRecovery=True)
    stores.await_failed(OURS, "kept", NOT_THERE)
    assert stores.value(OURS, "kept") is not None


def test_the_controller_in_use_serves_the_apis_that_stacks_use() -> None:
    assert set(EXTERNAL_SECRETS.apis.values()) == {"external-secrets.io/v1"}
