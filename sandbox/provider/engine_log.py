"""Messages in the engine's display: permanent warnings and current statuses of resources."""

from __future__ import annotations

import contextlib
import threading

import grpc
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc

from sandbox.pulumi_plugin import CHANNEL_OPTIONS


class EngineLog:
    """Sends messages to the engine, best effort. Thread-safe."""

    def __init__(self, address: str) -> None:
        channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
        self._engine = engine_pb2_grpc.EngineStub(channel)
        self._lock = threading.Lock()
        self._reported: set[tuple[str, str]] = set()
        self._status: dict[str, str] = {}

    def warning(self, urn: str, text: str) -> None:
        """Send a permanent warning, once per resource."""
        with self._lock:
            if (urn, text) in self._reported:
                return
            self._reported.add((urn, text))
        self._send(engine_pb2.WARNING, urn, text, ephemeral=False)

    def status(self, urn: str, text: str) -> None:
        """Show what a resource is waiting for; an empty text clears it."""
        with self._lock:
            if self._status.get(urn, "") == text:
                return
            self._status[urn] = text
        self._send(engine_pb2.INFO, urn, text, ephemeral=True)

    def _send(
        self, severity: engine_pb2.LogSeverity.ValueType, urn: str, text: str, *, ephemeral: bool
    ) -> None:
        request = engine_pb2.LogRequest(
            severity=severity, message=text, urn=urn, ephemeral=ephemeral
        )
        # The engine may be exiting.
        with contextlib.suppress(grpc.RpcError):
            self._engine.Log(request, timeout=5)
