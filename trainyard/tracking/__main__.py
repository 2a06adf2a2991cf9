"""Send the metrics of a run directory to an MLflow server, without MLflow's package."""

from __future__ import annotations

import sys

from trainyard.tracking import sending
from trainyard.tracking.rest_server import RestServer


def uri_errors(uri: str) -> list[str]:
    """Return what is wrong with a URI."""
    if uri.startswith(("http://", "https://")):
        return []
    return [
        f"--uri: {uri!r} is not a tracking server; must be http://SERVER or https://SERVER; correct it"
    ]


if __name__ == "__main__":
    sys.exit(sending.main(sys.argv[1:], RestServer, uri_errors, "trainyard.tracking"))
