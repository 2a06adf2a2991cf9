"""`python -m sandbox.node`: the daemon. SIGTERM stops it; containers keep running, as with a kubelet."""

from __future__ import annotations

import argparse
import logging
import signal
import sys

from sandbox import paths
from sandbox.node.agent import Agent


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
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
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    Agent(paths.state(), options.port).start()
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
