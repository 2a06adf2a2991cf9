"""`python -m trainer.weights`: exit codes 0 fetched or there, 78 cannot be fetched, 1 I/O or no answer."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from trainer.cli import Parser
from trainer.prepare.progress import ProgressReporter
from trainer.prepare.state import StateReporter
from trainer.weights.bucket import Bucket
from trainer.weights.fetch import Fetch
from trainer.weights.files import Place, TransientError, WeightsError
from trainer.weights.reference import BadReference, HubModel, parse_reference
from trainyard.contract import EXIT_BAD_CONFIG, EXIT_DONE


def main() -> int:
    """Fetch the model and print where it is; returns the exit code."""
    arguments = _parse()
    signal.signal(signal.SIGTERM, _interrupted)
    reporter = ProgressReporter()
    state = StateReporter(arguments.state, arguments.attempts)

    def progress(what: str, done: int, total: int = 0, /) -> None:
        reporter(what, done, total)
        state.progress(what, done, total)

    def fail(error: str, code: int) -> int:
        reporter.close()
        state.failed(error, final=code == EXIT_BAD_CONFIG)
        print(f"weights: {error}", file=sys.stderr)
        return code

    try:
        place = _open(arguments.source)
        fetch = Fetch(place=place, source=arguments.source, folder=arguments.out, progress=progress)
        fetched = fetch.run()
    except (BadReference, WeightsError) as error:
        return fail(str(error), EXIT_BAD_CONFIG)
    except TransientError as error:
        return fail(str(error), 1)
    except OSError as error:
        return fail(f"{error.filename or arguments.out}: {error.strerror or error}", 1)
    except KeyboardInterrupt:
        reporter.close()
        state.interrupted()
        print("weights: interrupted; run it again to continue", file=sys.stderr)
        return 128 + signal.SIGINT
    reporter.close()
    state.ready(arguments.source)
    print(f"{'fetched' if fetched else 'up to date:'} {arguments.out}")
    return EXIT_DONE


def _open(source: str) -> Place:
    found = parse_reference(source)
    if not isinstance(found, HubModel):
        return Bucket(found)
    from trainer.weights.hub import Hub  # imports huggingface_hub

    return Hub(found)


def _interrupted(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _parse() -> argparse.Namespace:
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
    parser.add_argument(
        "--state", type=Path, metavar="FILE", help="file with progress and result, for waiting runs"
    )
    parser.add_argument(
        "--attempts",
        type=int,
        default=1,
        metavar="N",
        help="attempts after which --state reports a failure (default: %(default)s)",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
