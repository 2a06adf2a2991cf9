"""`python -m sandbox.node`: the daemon. SIGTERM stops it; containers keep running, as with a kubelet."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading

from sandbox import paths
from sandbox.node.agent import Agent


def main() -> int:
    """Serve until SIGTERM or SIGINT; return 1 when the agent cannot start."""
    parser = argparse.ArgumentParser(prog="python -m sandbox.node", description=__doc__)
    parser.add_argument(
        "--port", type=int, required=True, help="port of the kubelet endpoint on loopback"
    )
    options = parser.parse_args()
    logging.basicConfig(
        stream=sys.stdout,
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    stop, failed = threading.Event(), threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    threading.Thread(
        target=_serve, args=(options.port, failed, stop), name="agent", daemon=True
    ).start()
    stop.wait()
    if failed.is_set():
        return 1
    logging.getLogger("agent").info("stopping; containers keep running")
    return 0


def _serve(port: int, failed: threading.Event, stop: threading.Event) -> None:
    try:
        Agent(paths.state(), port).start()
    except Exception:
        logging.getLogger("agent").exception("cannot start")
        failed.set()
        stop.set()


if __name__ == "__main__":
    sys.exit(main())
