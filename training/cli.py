"""Command lines whose mistakes are configuration mistakes: exit code 78, so that no one retries."""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

from training.spec import EXIT_BAD_CONFIG


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that ends with 78 instead of 2."""

    def error(self, message: str) -> NoReturn:
        """One line, and the way to the rest."""
        print(f"{self.prog}: {message} (see --help)", file=sys.stderr)
        sys.exit(EXIT_BAD_CONFIG)
