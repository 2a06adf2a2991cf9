"""`python -m trainer.weights`: exit codes 0 fetched or there, 78 cannot be fetched, 1 I/O or no answer."""

from __future__ import annotations

import sys
from pathlib import Path

from trainer.cli import Parser
from trainer.prepare.state import ProgressCallback, add_options, run_reported
from trainer.weights.fetch import fetch
from trainer.weights.places import WeightsError, open_place
from trainer.weights.reference import BadReference


def main() -> int:
    """Fetch the model and print where it is; returns the exit code."""
    parser = Parser(
        prog="python -m trainer.weights",
        description="Fetch a model's configuration, safetensors and tokenizer into a folder.",
    )
    parser.add_argument(
        "--source", required=True, help="hub:ORG/NAME@COMMIT, or s3://BUCKET/PREFIX"
    )
    parser.add_argument(
        "--out", required=True, type=Path, metavar="DIR", help="the model's own folder"
    )
    add_options(parser)
    arguments = parser.parse_args()

    def work(progress: ProgressCallback) -> tuple[str, str]:
        source, folder = arguments.source, arguments.out
        fetched = fetch(open_place(source), source, folder, progress)
        return source, f"{'fetched' if fetched else 'up to date:'} {folder}"

    return run_reported("weights", arguments, work, BadReference, WeightsError)


if __name__ == "__main__":
    sys.exit(main())
