"""Send the metrics of a run directory to MLflow: a server, or an sqlite file, which takes MLflow's package."""

from __future__ import annotations

import sys

from training.trainer.config.reporting import uri_issues
from trainyard.tracking import sending
from trainyard.tracking.mlflow_sync import TrackingServer
from trainyard.tracking.rest_server import RestServer


def main() -> int:
    """Send the run; returns the exit code."""
    return sending.main(sys.argv[1:], connect, uri_errors, "training.tracking")


def connect(uri: str) -> TrackingServer:
    """Return the server of a tracking URI."""
    if not uri.startswith("sqlite:"):
        return RestServer(uri)
    from training.tracking.mlflow_file import MlflowFile

    return MlflowFile(uri)


def uri_errors(uri: str) -> list[str]:
    """Return what is wrong with a URI."""
    return [str(issue) for issue in uri_issues("--uri", uri)]


if __name__ == "__main__":
    sys.exit(main())
