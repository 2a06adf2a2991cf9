"""Reads from an API server that does not answer in time."""

from __future__ import annotations

import socket

import pytest

from ops.cluster import Cluster, UnreachableError


def test_what_is_not_answered_in_time_is_asked_for_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        context = {"name": "a", "context": {"cluster": "a", "user": "a"}}
        cluster = Cluster(
            {
                "clusters": [{"name": "a", "cluster": {"server": address}}],
                "contexts": [context],
                "users": [{"name": "a", "user": {}}],
                "current-context": "a",
            }
        )
        with pytest.raises(UnreachableError, match="timed out"):
            cluster.text("/log", [], timeout_s=0.2)
        server.settimeout(0)
        server.accept()
        with pytest.raises(BlockingIOError):
            server.accept()
