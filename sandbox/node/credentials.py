"""A process node's client certificate, requested as kubelets request theirs.

The agent may ask for certificates of nodes; kube-controller-manager approves and signs them. The API server then
gives each the rights of that node only: its pods, and what these pods refer to.
"""

from __future__ import annotations

import base64
import threading
import time
from pathlib import Path
from typing import Any

import urllib3

from sandbox import certificates
from sandbox.node.api import ApiUnavailable, Client

SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
SIGN_TIMEOUT_S = 10.0
POLL_S = 0.05
_REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


class NodeClient(Client):
    """Requests as one node. The first one waits for the node's certificate, which is kept in memory only."""

    def __init__(self, kubeconfig: Path, node: str) -> None:
        super().__init__(kubeconfig)
        self._agent, self._node = Client(kubeconfig), node
        self._joining = threading.Lock()
        self._joined = False

    def _send(self, *request: Any) -> urllib3.BaseHTTPResponse:
        with self._joining:
            if not self._joined:
                self._use(*request_certificate(self._agent, node_identity(self._node)))
                self._joined = True
        return super()._send(*request)


def node_identity(node: str) -> certificates.Identity:
    return certificates.Identity(f"node-{node}", f"system:node:{node}", "system:nodes")


def request_certificate(
    client: Client, identity: certificates.Identity, signer: str = SIGNER
) -> tuple[bytes, bytes]:
    """Return certificate and key (PEM). Raises ApiError, or ApiUnavailable if it is not signed in time."""
    request, key = certificates.signing_request(identity)
    spec = {
        "request": base64.b64encode(request).decode(),
        "signerName": signer,
        "usages": ["client auth", "digital signature"],
    }
    kind = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"}
    made = client.create(_REQUESTS, {**kind, "metadata": {"generateName": "node-"}, "spec": spec})
    path = f"{_REQUESTS}/{made['metadata']['name']}"
    deadline = time.monotonic() + SIGN_TIMEOUT_S
    while time.monotonic() < deadline:
        signed = (client.get(path).get("status") or {}).get("certificate")
        if signed:
            return base64.b64decode(signed), key
        time.sleep(POLL_S)
    raise ApiUnavailable(
        f"certificate of {identity.common_name}: not signed in {SIGN_TIMEOUT_S:g} s"
    )
