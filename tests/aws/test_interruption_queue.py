"""Interruptions: events in Karpenter's queue, its senders, and the sidecar's notice file."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.sites.aws import imds_sidecar, interruption
from infra.sites.aws.interruption import InterruptionQueue
from tests.aws.iam_evaluation import Request, allowed
from tests.aws.moto_cloud import ACCOUNT, Cloud, Deployed
from trainyard import contract as trainer

Build = Callable[[Any], Deployed]

SAMPLES: dict[str, tuple[str, str, dict[str, str]]] = {
    "spot-interruption": ("aws.ec2", "EC2 Spot Instance Interruption Warning", {}),
    "rebalance": ("aws.ec2", "EC2 Instance Rebalance Recommendation", {}),
    "state-change": ("aws.ec2", "EC2 Instance State-change Notification", {"state": "stopping"}),
    "scheduled-change": (
        "aws.health",
        "AWS Health Event",
        {"service": "EC2", "eventTypeCategory": "scheduledChange"},
    ),
    "reservation-end": (
        "aws.ec2",
        "EC2 Capacity Reservation Instance Interruption Warning",
        {},
    ),
}
OTHERS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("aws.ec2", "EC2 Instance State-change Notification", {"state": "running"}),
    ("aws.health", "AWS Health Event", {"service": "RDS", "eventTypeCategory": "scheduledChange"}),
    ("aws.health", "AWS Health Event", {"service": "EC2", "eventTypeCategory": "issue"}),
    ("com.example", "EC2 Spot Instance Interruption Warning", {}),
)


def send(cloud: Cloud, source: str, kind: str, detail: dict[str, str]) -> None:
    entry = {"Source": source, "DetailType": kind, "Detail": json.dumps(detail)}
    cloud.client("events").put_events(Entries=[entry])


def received(cloud: Cloud, url: str) -> list[str]:
    messages = cloud.client("sqs").receive_message(QueueUrl=url, MaxNumberOfMessages=10)
    return [json.loads(one["Body"])["detail-type"] for one in messages.get("Messages", [])]


def test_every_aws_interruption_event_reaches_the_queue_and_other_events_do_not(
    build: Build, cloud: Cloud
) -> None:
    made = build(lambda opts: InterruptionQueue("interruption", opts))
    url = made.one("aws:sqs/queue:Queue").id
    assert set(SAMPLES) == set(interruption.PATTERNS)
    for event in OTHERS:
        send(cloud, *event)
    assert received(cloud, url) == []
    for event in SAMPLES.values():
        send(cloud, *event)
    assert sorted(received(cloud, url)) == sorted(kind for _, kind, _ in SAMPLES.values())


QUEUE = f"arn:aws:sqs:us-east-1:{ACCOUNT}:q"
RULE = f"arn:aws:events:us-east-1:{ACCOUNT}:rule/spot"
TLS = {"aws:SecureTransport": "true"}


@pytest.mark.parametrize(
    ("service", "context", "may"),
    [
        ("events.amazonaws.com", TLS | {"aws:SourceArn": RULE}, True),
        ("events.amazonaws.com", TLS | {"aws:SourceArn": f"{RULE}-of-others"}, False),
        ("events.amazonaws.com", {"aws:SecureTransport": "false", "aws:SourceArn": RULE}, False),
        ("sns.amazonaws.com", TLS | {"aws:SourceArn": RULE}, False),
        (None, TLS, False),
    ],
    ids=["our rule", "another rule", "without TLS", "another service", "nobody"],
)
def test_only_our_event_rules_may_send(
    service: str | None, context: dict[str, str], may: bool
) -> None:
    request = Request(
        action="sqs:SendMessage", resource=QUEUE, account=None, service=service, context=context
    )
    policy = interruption.queue_policy(QUEUE, [RULE])
    assert allowed(request, resource=policy, owner=ACCOUNT) is may


def test_queue_policy_lists_exactly_its_rules(build: Build, cloud: Cloud) -> None:
    made = build(lambda opts: InterruptionQueue("interruption", opts))
    policy = json.loads(made.one("aws:sqs/queuePolicy:QueuePolicy").inputs["policy"])
    named = policy["Statement"][0]["Condition"]["ArnEquals"]["aws:SourceArn"]
    rules = cloud.client("events").list_rules()["Rules"]
    assert sorted(named) == sorted(rule["Arn"] for rule in rules)
    assert len(rules) == 5


class MetadataService(http.server.ThreadingHTTPServer):
    """Answers as EC2's does: tokens by PUT, and with one, `status` for the notice."""

    status = 404

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        super().__init__(("127.0.0.1", 0), _Answers)


class _Answers(http.server.BaseHTTPRequestHandler):
    server: MetadataService

    def do_PUT(self) -> None:
        lifetime = self.headers["X-aws-ec2-metadata-token-ttl-seconds"]
        self._answer(200 if self.path == "/api/token" and lifetime else 400, b"a token")

    def do_GET(self) -> None:
        known = self.path == "/meta-data/spot/instance-action"
        token = self.headers["X-aws-ec2-metadata-token"] == "a token"
        self._answer(self.server.status if known and token else 401, b'{"action": "terminate"}')
        self.server.asked.release()

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        return


@pytest.fixture
def service() -> Iterator[MetadataService]:
    with MetadataService() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def notice_file(service: MetadataService, tmp_path: Path) -> Iterator[Path]:
    """The sidecar runs against the service and may touch this file."""
    file = tmp_path / "notice"
    script = imds_sidecar.script(f"http://127.0.0.1:{service.server_port}", poll_seconds=0.01)
    env = os.environ | {imds_sidecar.NOTICE_FILE_ENV: str(file)}
    process = subprocess.Popen([sys.executable, "-c", script], env=env, stdout=subprocess.PIPE)
    yield file
    process.kill()
    process.communicate()


def test_sidecar_touches_the_notice_file_once_aws_gives_notice(
    service: MetadataService, notice_file: Path
) -> None:
    for _ in range(3):
        assert service.asked.acquire(timeout=20)
    assert not notice_file.exists()
    service.status = 200
    # The answer to one request has been read by the time of the next but one.
    for _ in range(3):
        assert service.asked.acquire(timeout=20)
    assert notice_file.exists()


def test_sidecar_survives_an_unavailable_metadata_service(
    service: MetadataService, notice_file: Path
) -> None:
    service.status = 403
    for _ in range(3):
        assert service.asked.acquire(timeout=20)
    assert not notice_file.exists()


def test_trainer_and_sidecar_share_the_notice_file() -> None:
    added = imds_sidecar.pod_additions()
    (sidecar,) = added["initContainers"]
    assert (
        added["env"]
        == sidecar["env"]
        == [{"name": trainer.NOTICE_FILE_ENV, "value": imds_sidecar.NOTICE_FILE}]
    )
    (volume,), (mount,) = added["volumes"], added["volumeMounts"]
    assert mount["readOnly"] and mount["name"] == volume["name"]
    assert sidecar["volumeMounts"] == [{"name": volume["name"], "mountPath": mount["mountPath"]}]
    assert Path(imds_sidecar.NOTICE_FILE).parent == Path(mount["mountPath"])


def test_sidecar_polls_every_five_seconds_and_ends_with_the_trainer() -> None:
    (sidecar,) = imds_sidecar.pod_additions()["initContainers"]
    assert "POLL_SECONDS = 5.0\n" in sidecar["command"][2]
    assert "http://169.254.169.254/latest" in sidecar["command"][2]
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["resources"]["requests"] == sidecar["resources"]["limits"]
