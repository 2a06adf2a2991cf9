"""`python -m training.prepare`: exit 0 when the dataset is there, 78 for a mistake, 1 for I/O."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from training.command_line import Parser
from training.prepare.dataset import DatasetError, read_index
from training.prepare.source import named
from training.prepare.writing import Settings, prepare
from training.spec import EXIT_BAD_CONFIG, EXIT_DONE


def main() -> int:
    """Parse, prepare, say what is there."""
    arguments = _parse()
    begun = time.monotonic()
    settings = Settings(eval_fraction=arguments.eval_fraction, shard_tokens=arguments.shard_tokens)
    try:
        source = named(arguments.source, tuple(arguments.suffix))
        folder, written = prepare(source, arguments.out, settings)
        index = read_index(folder)
    except DatasetError as error:
        print(f"prepare: {error}", file=sys.stderr)
        return EXIT_BAD_CONFIG
    except OSError as error:
        print(f"prepare: {error.filename or arguments.out}: {error.strerror}", file=sys.stderr)
        return 1
    print(
        f"{'wrote' if written else 'already there:'} {folder}: "
        f"{index.source['documents']} documents, {index.tokens('train'):,} tokens to train on, "
        f"{index.tokens('eval'):,} held out, {len(index.shards)} shards "
        f"({time.monotonic() - begun:.1f} s)"
    )
    return EXIT_DONE


def _parse() -> argparse.Namespace:
    parser = Parser(
        prog="python -m training.prepare",
        description="Cut text into sharded byte-level token files with an index and hashes.",
    )
    parser.add_argument(
        "--source",
        required=True,
        help="stdlib (Python's own standard library on this machine) or a folder of text files",
    )
    parser.add_argument(
        "--out", required=True, type=Path, help="folder of the dataset, e.g. /data/NAME"
    )
    parser.add_argument(
        "--suffix",
        action="append",
        default=[],
        metavar=".EXT",
        help="read only files of a folder that end so; may be repeated (default: every file)",
    )
    parser.add_argument(
        "--eval-fraction",
        type=float,
        default=Settings.eval_fraction,
        help="part of the files that is held out (default: %(default)s)",
    )
    parser.add_argument(
        "--shard-tokens",
        type=int,
        default=Settings.shard_tokens,
        help="most tokens in one shard (default: %(default)s)",
    )
    arguments = parser.parse_args()
    if not 0 < arguments.eval_fraction < 1:
        parser.error(f"--eval-fraction: got {arguments.eval_fraction}; allowed between 0 and 1")
    if arguments.shard_tokens < 1024:
        parser.error(f"--shard-tokens: got {arguments.shard_tokens}; allowed >= 1024")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
