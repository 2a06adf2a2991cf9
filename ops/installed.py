"""Entry point of the installed command: `pip install "trainyard[cli]"`.

A wheel has the folders of the repository below `trainyard_cli`, so that no package of an environment is called
`ops` or `infra`. In the process of the command they are what they are in a checkout.
"""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path


def main() -> int:
    if sys.version_info < (3, 11):  # the library supports older ones
        return _refuse("requires Python 3.11 or newer; install it in an environment of one")
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    try:
        from ops.__main__ import main as run
    except ModuleNotFoundError as error:
        return _refuse(f'{error.name} is not installed; run: pip install "trainyard[cli]"')
    return run()


def _refuse(why: str) -> int:
    print(f"error: trainyard {metadata.version('trainyard')}: {why}", file=sys.stderr)
    return 2
