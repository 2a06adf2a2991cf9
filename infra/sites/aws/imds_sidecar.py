"""Sidecar that polls the instance metadata service for a spot notice; off by default.

Node-level drains reach the trainer as SIGTERM anyway (see infra/sites/aws/interruption.py). The sidecar requires
pods to reach the metadata service, and with it the node's credentials: see docs/adr/03-aws-foundation.md.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

from infra.kubernetes import pod_security

IMDS_ADDRESS: Final = "169.254.169.254"
"""Namespaces that deny egress must allow this address."""
IMDS: Final = f"http://{IMDS_ADDRESS}/latest"

POLL_SECONDS: Final = 5.0
"""AWS recommends polling every 5 s; the notice comes 120 s before the end."""

NOTICE_FILE_ENV: Final = "TRAINYARD_NOTICE_FILE"
"""Names the file that the trainer checks."""

CONTAINER: Final = "spot-notice"
VOLUME: Final = "spot-notice"
_FOLDER: Final = "/var/run/trainyard"
NOTICE_FILE: Final = f"{_FOLDER}/spot-notice"


class MetadataAccess(StrEnum):
    NODE = "node"
    """Processes of the node and pods on its network. The default: one hop does not reach other pods."""
    PODS = "pods"
    """Every pod, which can then read the node's credentials. Required by the sidecar."""

    @property
    def hop_limit(self) -> int:
        return 1 if self is MetadataAccess.NODE else 2


_SCRIPT: Final = """\
import os, pathlib, time, urllib.error, urllib.request
def ask(path, method, **headers):
    headers = {"X-aws-ec2-metadata-" + key: value for key, value in headers.items()}
    request = urllib.request.Request(ENDPOINT + path, method=method, headers=headers)
    return urllib.request.urlopen(request, timeout=2).read().decode()
notice = pathlib.Path(os.environ["TRAINYARD_NOTICE_FILE"])
while True:
    try:
        token = ask("/api/token", "PUT", **{"token-ttl-seconds": "60"})
        action = ask("/meta-data/spot/instance-action", "GET", token=token)
        if not notice.exists():
            print("spot notice:", action, flush=True)
            notice.touch()
    except urllib.error.HTTPError as error:
        if error.code != 404:  # 404: no notice yet
            print("metadata service:", error, flush=True)
    except OSError as error:
        print("metadata service:", error, flush=True)
    time.sleep(POLL_SECONDS)
"""


def script(endpoint: str = IMDS, poll_seconds: float = POLL_SECONDS) -> str:
    """Return the sidecar's program, which needs the standard library only."""
    return f"ENDPOINT = {endpoint!r}\nPOLL_SECONDS = {poll_seconds!r}\n{_SCRIPT}"


def pod_additions() -> dict[str, list[dict[str, Any]]]:
    """Return additions to a trainer's pod by field.

    `initContainers` and `volumes` belong to the pod, `env` and `volumeMounts` to the trainer's container. The
    sidecar has no image: it uses the trainer's, which the node has already pulled. As an init container with
    restartPolicy Always it does not keep a finished run from completing.
    """
    mount = {"name": VOLUME, "mountPath": _FOLDER}
    env = {"name": NOTICE_FILE_ENV, "value": NOTICE_FILE}
    amounts = {"cpu": "10m", "memory": "32Mi"}
    sidecar = {
        "name": CONTAINER,
        "restartPolicy": "Always",
        "command": ["python", "-c", script()],
        "env": [env],
        "resources": {"requests": dict(amounts), "limits": dict(amounts)},
        "volumeMounts": [mount],
        "securityContext": pod_security.container_security(),
    }
    return {
        "initContainers": [sidecar],
        "volumes": [{"name": VOLUME, "emptyDir": {}}],
        "env": [dict(env)],
        "volumeMounts": [{**mount, "readOnly": True}],
    }
