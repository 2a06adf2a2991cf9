"""Connections of the API server to Services and nodes: webhooks, aggregated APIs, `kubectl logs`.

The API server asks for them by HTTP CONNECT on a Unix socket, as its egress configuration says. A Service's
address leads to one of its ready pods; of nodes there are the agent's own endpoint and those of kubelets. Any
other address is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import socket
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from sandbox import paths
from sandbox.node.api import ApiError, ApiUnavailable, Client, Json, node_path, object_path
from sandbox.node.context import HOST_IP
from sandbox.node.hosts import HostTable

log = logging.getLogger("egress")

SOCKET = "egress.sock"
"""In the sandbox's folder, which only its user may enter, and which no container has."""
_CHUNK_BYTES = 64 * 1024
_BROKEN_OFF = (OSError, EOFError, ValueError, IndexError, asyncio.LimitOverrunError)
"""Errors of a connection that ends, or that is no CONNECT."""
_REFUSED = b"HTTP/1.1 503 Service Unavailable\r\n\r\n"
_CONNECTED = b"HTTP/1.1 200 OK\r\n\r\n"


class Egress(threading.Thread):
    def __init__(
        self,
        state: paths.State,
        hosts: HostTable,
        node_port: int,
        kubelets: Callable[[], Collection[tuple[str, int]]],
    ) -> None:
        super().__init__(name="egress", daemon=True)
        self._hosts, self._kubelets = hosts, kubelets
        self._node = (HOST_IP, node_port)
        self._listener = _listen(state)

    def run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_unix_server(self._handle, sock=self._listener)
        await server.serve_forever()

    async def _handle(self, reader: StreamReader, writer: StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(*_BROKEN_OFF):
            request = await reader.readuntil(b"\r\n\r\n")
            host, _, port = request.split()[1].decode().rpartition(":")
            try:
                far_reader, far_writer = await self._connect(host, int(port))
            except (OSError, ApiError, ApiUnavailable) as error:
                log.debug("%s:%s: %s", host, port, error)
                writer.write(_REFUSED)
                return
            with contextlib.closing(far_writer):
                writer.write(_CONNECTED)
                await _first_end(_copy(reader, far_writer), _copy(far_reader, writer))

    async def _connect(self, host: str, port: int) -> tuple[StreamReader, StreamWriter]:
        targets = self._hosts.backends(host, port)
        if (host, port) == self._node:
            targets = [self._node]
        if not targets and (host, port) in await asyncio.to_thread(self._kubelets):
            targets = [(host, port)]
        if not targets:
            raise OSError("no ready pod serves this port")
        return await asyncio.open_connection(*random.choice(targets))


def kubelet_endpoints(client: Client) -> set[tuple[str, int]]:
    """Return address and port of each node that is not of this machine's loopback."""
    found = set()
    for node in client.get(node_path())["items"]:
        status = node.get("status") or {}
        endpoint = (status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}
        for one in status.get("addresses") or []:
            if one["type"] == "InternalIP" and not one["address"].startswith("127."):
                found.add((one["address"], endpoint.get("Port", 0)))
    return found


class AggregatedApis:
    """Endpoints of the Services behind aggregated APIs, without which the API server does not ask them.

    Addresses of process pods are not valid in an EndpointSlice; a name is. Whether one answers the API server
    finds out itself.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def on_event(self, kind: str, api: Json) -> None:
        if kind == "DELETED" or "service" not in api["spec"]:
            return
        name, namespace = api["spec"]["service"]["name"], api["spec"]["service"]["namespace"]
        try:
            service = self._client.get(object_path("/api/v1", namespace, "services", name))
            self._client.create(
                object_path("/apis/discovery.k8s.io/v1", namespace, "endpointslices"),
                _slice(service),
            )
        except (ApiError, ApiUnavailable) as error:
            if not (isinstance(error, ApiError) and error.conflict):
                log.warning("%s: %s", api["metadata"]["name"], error)


def _slice(service: Json) -> Json:
    name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
    owner = {"apiVersion": "v1", "kind": "Service", "name": name}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/service-name": name},
            "ownerReferences": [{**owner, "uid": service["metadata"]["uid"]}],
        },
        "addressType": "FQDN",
        "endpoints": [{"addresses": [f"{name}.{namespace}.svc.cluster.local"]}],
        "ports": [
            {"name": port.get("name", ""), "port": port["port"]}
            for port in service["spec"]["ports"]
        ],
    }


def _listen(state: paths.State) -> socket.socket:
    """Return the listening socket; by the folder's descriptor, since addresses are shorter than paths may be."""
    path = state.home / SOCKET
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    folder = os.open(state.home, os.O_PATH)
    try:
        listener.bind(f"/proc/self/fd/{folder}/{SOCKET}")
    finally:
        os.close(folder)
    path.chmod(0o600)
    listener.listen()
    return listener


async def _first_end(*copies: Coroutine[Any, Any, None]) -> None:
    """Run until one side ends; the other then has nobody to speak to."""
    tasks = [asyncio.ensure_future(copy) for copy in copies]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


async def _copy(reader: StreamReader, writer: StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
