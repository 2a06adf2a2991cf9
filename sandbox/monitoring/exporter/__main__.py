"""`python -m sandbox.monitoring.exporter --port PORT`: serve Prometheus until stopped."""

from __future__ import annotations

import argparse
import logging
import os
from pathlib import Path

from sandbox import paths
from sandbox.monitoring.exporter.server import Exporter, serve
from sandbox.node.api import Client


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m sandbox.monitoring.exporter")
    parser.add_argument("--port", type=int, required=True)
    port: int = parser.parse_args().port
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s")
    exporter = Exporter(paths.state(), Client(Path(os.environ["KUBECONFIG"])))
    exporter.start()
    serve(exporter, port).serve_forever()


if __name__ == "__main__":
    main()
