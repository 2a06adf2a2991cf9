"""One rank of a training run: parse, build, run, close.

Exit codes: 0 done; 75 stopped by a notice after saving a checkpoint; 78 invalid configuration; 1 any
other failure. They reach the launcher through files, because torchrun does not pass them on.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import sys
import traceback
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

import trainyard
from trainer.cli import Parser
from trainer.config_errors import ConfigError
from trainer.prepare.dataset import DatasetError
from trainyard import reporting, session
from trainyard.contract import EXIT_BAD_CONFIG, EXIT_DONE, EXIT_PREEMPTED
from trainyard.exit_codes import report_config_errors, report_exit_code
from trainyard.notice import Notice


def main() -> int:
    """Run one rank; returns its exit code."""
    arguments = _parse()
    faulthandler.enable()  # a rank that a library aborts shows where it was
    notice = Notice(arguments.run_dir)
    notice.listen(leave=lambda: _exit(EXIT_PREEMPTED))
    try:
        return _train(arguments, notice)
    except (ConfigError, DatasetError) as error:
        report_config_errors(str(error))
        return EXIT_BAD_CONFIG
    except Exception as error:
        _report_error(error)
        return 1


def _train(arguments: argparse.Namespace, notice: Notice) -> int:
    # Late imports: an invalid configuration fails before torch is loaded.
    from trainer.preflight import check_request

    request = check_request(
        arguments.config,
        arguments.set,
        arguments.run_dir,
        arguments.run_record,
        arguments.continue_from,
    )
    from trainer import assembly, lineage, loop, publication
    from trainer.parallel.world import fix_numerics, join_world
    from trainer.startup import sent_to_mlflow

    trainyard.run.use(
        request.run_dir,
        checkpoint_store=request.config.checkpoint.store,
        record=arguments.run_record,
        notice_seconds=lineage.notice_seconds(request.record, request.config),
    )
    session.records_start = False
    trainyard.notice.use(notice)
    fix_numerics(request.config)
    code = 1
    with ExitStack() as stack:
        with join_world(request.config) as world:
            notice.work_started()
            if request.config.groups.workers:
                from trainer.groups import run_group

                return run_group(request, world, notice, describe=describe_error, leave=_exit)
            run = assembly.assemble(request, world, notice)
            if world.is_leader:
                stack.callback(reporting.close)
                stack.enter_context(sent_to_mlflow(request, lambda: code == EXIT_DONE))
            try:
                code = loop.train(run)
            except Exception as error:
                text = describe_error(error) or f"{type(error).__name__}: {error}"
                run.events.write("failed", run.progress.step, error=" ".join(text.split())[:300])
                raise
            run.loader.close()
        if code == EXIT_DONE and run.world.is_leader:
            publication.publish(run, request, _exit)
        run.events.close()
    return code


def _report_error(error: Exception) -> None:
    """Print one line for expected failures, a traceback for bugs."""
    text = describe_error(error, raw=True)
    if text is None:
        traceback.print_exception(error)
    else:
        print(f"rank {os.environ.get('RANK', '0')}: {text}", file=sys.stderr)


def describe_error(error: Exception, *, raw: bool = False) -> str | None:
    """Return one line for a failure that is expected to happen; None for a bug.

    `raw`: with the text of the communication library, which differs between versions.
    """
    expected = {
        "StaleAttempt",
        "NoUsableCheckpoint",
        "LossNotFinite",
        "ObjectError",
        "CorruptCheckpoint",
        "UnknownFormat",
        "RestoreError",
        "ReplicasDiffer",
        "StateMismatch",
    }
    text = " ".join(str(error).split())
    if expected & {kind.__name__ for kind in type(error).__mro__}:
        return text
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if type(error).__name__ == "DistStoreError" or "gloo" in str(error) or "NCCL" in str(error):
        return f"another rank is gone or hangs{f': {text[:300]}' if raw else ''}"
    return None


def _parse() -> argparse.Namespace:
    parser = Parser(
        prog="python -m trainer",
        description="Train a language model; use trainyard.launch for several ranks.",
        epilog="example:\n  python -m trainer --config config.yaml --run-dir runs/hello "
        "--set data.path=/data/stdlib",
    )
    parser.add_argument(
        "--config", required=True, type=Path, metavar="FILE", help="trainer configuration (YAML)"
    )
    parser.add_argument(
        "--run-dir", required=True, type=Path, metavar="DIR", help="logs and checkpoints"
    )
    parser.add_argument("--run-record", type=Path, metavar="FILE", help="run.json of the platform")
    parser.add_argument(
        "--continue-from",
        type=Path,
        metavar="DIR",
        help="directory of a finished run: start at its newest checkpoint instead of step 0",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a setting, e.g. data.path=/data/NAME; repeatable",
    )
    return parser.parse_args()


def _exit(code: int) -> NoReturn:
    """Report the exit code to the launcher and exit immediately.

    Not sys.exit: torch's teardown takes time that a notice may not leave, and can hang when other
    ranks are gone.
    """
    report_exit_code(code)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _exit(main())
