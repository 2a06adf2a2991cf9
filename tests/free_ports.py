"""Loopback ports for servers of tests."""

from __future__ import annotations

import random

from sandbox.ports import RANGE, is_free


def free_port() -> int:
    """Return a port on which a server can listen, now and after a slow start.

    The port is not held. The kernel gives ports of its own range (`bind` to port 0) to outgoing connections,
    of which parallel tests make thousands, so one of those may be taken before a slow program binds it; this
    one lies below that range.
    """
    return next(port for port in random.sample(RANGE, len(RANGE)) if is_free(port))
