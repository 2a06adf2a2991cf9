"""What commands in pods share: arguments that end with exit code 78, which launchers never retry, and reports."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from trainyard.contract import EXIT_BAD_CONFIG


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that keeps line breaks of descriptions and exits with 78 instead of 2."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(**options)

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message} (see --help)", file=sys.stderr)
        sys.exit(EXIT_BAD_CONFIG)


def report_runs(name: str, lines: Iterable[Mapping[str, Any]], resumption: str) -> str:
    """Print a line of JSON per run; return the OSError or ValueError that ended them, empty if none did.

    SIGTERM ends the process with 130 and `resumption`: what the next call does.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for line in lines:
            print(json.dumps(line, sort_keys=True), flush=True)
    except (OSError, ValueError) as error:
        return " ".join(str(error).split())
    except KeyboardInterrupt:
        print(f"{name}: interrupted; {resumption}", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
    return ""
