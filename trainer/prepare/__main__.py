"""`python -m trainer.prepare`: exit codes 0 prepared or already there, 78 invalid input, 1 I/O."""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from trainer.cli import Parser
from trainer.prepare.dataset import DatasetError, read_index
from trainer.prepare.download import local_folder
from trainer.prepare.names import BYTES, DEFAULT_COLUMN, FORMATS
from trainer.prepare.scan import available_processes
from trainer.prepare.source import open_source
from trainer.prepare.state import ProgressCallback, RetryableError, add_options, run_reported
from trainer.prepare.tokens import parse_tokenizer_choice
from trainer.prepare.writer import Settings, prepare


def main() -> int:
    """Prepare the dataset and print a summary; returns the exit code."""
    arguments = _parse()
    begun = time.monotonic()

    def work(progress: ProgressCallback) -> tuple[str, str]:
        try:
            folder, written = _prepare(arguments, progress)
        except BrokenProcessPool:
            raise RetryableError(
                "a process that reads or tokenizes was killed, probably for lack of memory; "
                "give it more memory, or lower --processes"
            ) from None
        index = read_index(folder)
        return folder.name, (
            f"{'wrote' if written else 'up to date:'} {folder}: "
            f"{index.source['documents']} documents, {index.tokens('train'):,} training tokens, "
            f"{index.tokens('eval'):,} held-out tokens, {len(index.shards)} shards "
            f"({time.monotonic() - begun:.1f} s)"
        )

    return run_reported("prepare", arguments, work, DatasetError)


def _prepare(arguments: argparse.Namespace, progress: ProgressCallback) -> tuple[Path, bool]:
    settings = Settings(eval_fraction=arguments.eval_fraction, shard_tokens=arguments.shard_tokens)
    tokens = parse_tokenizer_choice(arguments.tokenizer, arguments.boundary_token)
    suffixes = tuple(arguments.suffix)
    if arguments.out.resolve().is_relative_to(Path(arguments.source).resolve()):
        raise DatasetError(f"--out: {arguments.out} lies in --source; must be another folder")
    with local_folder(arguments.source, arguments.out, suffixes, progress) as place:
        source = open_source(place, suffixes, arguments.column, arguments.format)
        formats = source.formats()
        if len(formats) > 1:
            read = ", ".join(f"{count} as {name}" for name, count in sorted(formats.items()))
            print(f"prepare: {arguments.source}: reads files {read}", file=sys.stderr)
        return prepare(source, arguments.out, settings, tokens, progress, arguments.processes)


def _parse() -> argparse.Namespace:
    parser = Parser(
        prog="python -m trainer.prepare",
        description="Tokenize text into sharded, checksummed files for the trainer.",
        epilog="example:\n  python -m trainer.prepare --source stdlib --tokenizer train:8192 "
        "--out /data/stdlib",
    )
    parser.add_argument(
        "--source",
        required=True,
        help="stdlib (this machine's Python standard library), or a folder or s3://BUCKET/PREFIX "
        "of text, parquet or jsonl files, which may be compressed (gz, zst, bz2, xz, lz4)",
    )
    parser.add_argument(
        "--out", required=True, type=Path, metavar="DIR", help="dataset folder, e.g. /data/NAME"
    )
    parser.add_argument(
        "--tokenizer",
        default=BYTES,
        metavar="FILE|train:VOCAB|bytes",
        help="tokenizer.json file, or a vocabulary size to train one on this text "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--boundary-token",
        metavar="TOKEN",
        help="token that ends a document, for --tokenizer FILE (default: first of <|endoftext|>, "
        "<|end_of_text|>, </s>, <eos>, [SEP] that exists)",
    )
    parser.add_argument(
        "--column",
        default=DEFAULT_COLUMN,
        metavar="NAME",
        help="text column of .parquet and .jsonl files, one document per row (default: %(default)s)",
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="",
        help="how every file is read; text: a file is one document (default: by each file's content "
        "and suffix)",
    )
    parser.add_argument(
        "--suffix",
        action="append",
        default=[],
        metavar=".EXT",
        help="read only files with this suffix, compressed or not; repeatable (default: every file "
        "that is not hidden)",
    )
    parser.add_argument(
        "--eval-fraction",
        type=float,
        default=Settings.eval_fraction,
        metavar="FRACTION",
        help="fraction of documents held out for evaluation (default: %(default)s)",
    )
    parser.add_argument(
        "--shard-tokens",
        type=int,
        default=Settings.shard_tokens,
        metavar="N",
        help="maximum tokens per shard (default: %(default)s)",
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=available_processes(),
        metavar="N",
        help="processes that read and tokenize (default: one per core, %(default)s here)",
    )
    add_options(parser)
    arguments = parser.parse_args()
    if not 0 < arguments.eval_fraction < 1:
        parser.error(f"--eval-fraction: got {arguments.eval_fraction}; must be between 0 and 1")
    if arguments.shard_tokens < 1024:
        parser.error(f"--shard-tokens: got {arguments.shard_tokens}; must be at least 1024")
    if arguments.processes < 1:
        parser.error(f"--processes: got {arguments.processes}; must be at least 1")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
