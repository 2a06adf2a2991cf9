"""Argument parsing that ends with exit code 78, which launchers never retry."""

from __future__ import annotations

import argparse
import sys
from typing import Any, NoReturn

from trainyard.contract import EXIT_BAD_CONFIG


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that keeps line breaks of descriptions and exits with 78 instead of 2."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(**options)

    def error(self, message: str) -> NoReturn:
        """Print one line and exit."""
        print(f"{self.prog}: {message} (see --help)", file=sys.stderr)
        sys.exit(EXIT_BAD_CONFIG)
