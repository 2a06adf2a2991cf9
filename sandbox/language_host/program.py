"""Run one Pulumi program in a separate process with its own environment.

Started by path with the program's interpreter; imports the SDK and the standard library only. It configures
the SDK, runs the program, waits until all resources are registered, and reports a failure once, as a
diagnostic with the program's frames. Exit codes: 0 success; 32 failed and reported; else the program's.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import runpy
import signal
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import NoReturn

BAIL_EXIT_CODE = 32
KUBERNETES_SDK = "pulumi_kubernetes"
PARENT_CHECK_SECONDS = 1.0


def main() -> int:
    arguments = _parse()
    _die_with(os.getppid())
    signal.signal(signal.SIGINT, _interrupted)
    signal.signal(signal.SIGTERM, _interrupted)
    try:
        import pulumi
    except ImportError as error:
        print(
            f"{sys.executable} has no Pulumi SDK ({error}); install the project's requirements.txt",
            file=sys.stderr,
        )
        return BAIL_EXIT_CODE
    _configure(arguments)
    use_sandbox_plugin()
    sys.argv = [arguments.program, *arguments.arguments]
    # Imports of the program start from its folder, not from this file's.
    sys.path[0] = str(_folder(arguments.program))
    try:
        return _run(arguments.program, arguments.parallel)
    except pulumi.RunError as error:
        pulumi.log.error(str(error))
    except SystemExit as error:
        return _exit_code(error)
    except Exception as error:  # whatever the program raises is the user's to read
        pulumi.log.error("Program failed with an unhandled exception:\n" + _own_frames(error))
    return BAIL_EXIT_CODE


def run_plugin() -> int:
    """Run a plugin, `program.py --plugin FOLDER ARGUMENTS`, until the engine ends it."""
    use_sandbox_plugin()
    del sys.argv[:2], sys.path[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
    return 0


def use_sandbox_plugin() -> None:
    """Let the Kubernetes SDK ask the engine for the sandbox's version of its plugin instead of its own."""
    own = metadata.version
    if version := os.environ.get("SANDBOX_KUBERNETES_PLUGIN"):
        metadata.version = lambda name: version if name == KUBERNETES_SDK else own(name)  # type: ignore[assignment]


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for flag in ("monitor", "engine", "project", "stack", "organization", "root-directory"):
        parser.add_argument(f"--{flag}", required=True)
    parser.add_argument("--parallel", type=int, required=True)
    parser.add_argument("--dry-run", choices=["true", "false"], required=True)
    parser.add_argument("program")
    parser.add_argument("arguments", nargs="*")
    return parser.parse_args()


def _configure(arguments: argparse.Namespace) -> None:
    from pulumi import runtime

    runtime.set_all_config(runtime.get_config_env(), runtime.get_config_secret_keys_env())
    runtime.configure(
        runtime.Settings(
            monitor=arguments.monitor,
            engine=arguments.engine,
            project=arguments.project,
            stack=arguments.stack,
            parallel=arguments.parallel,
            dry_run=arguments.dry_run == "true",
            organization=arguments.organization,
            root_directory=arguments.root_directory,
        )
    )


def _run(program: str, parallel: int) -> int:
    """Run the program within its stack. Registrations wait in threads: four per operation."""
    from pulumi import log, runtime

    path = Path(program)
    if path.is_dir() and not (path / "__main__.py").exists():
        log.error(f"{path}: not a Python program; it has no __main__.py")
        return BAIL_EXIT_CODE
    # When a program fails, futures of unregistered resources stay unawaited.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    executor = ThreadPoolExecutor(max_workers=max(parallel, 1) * 4)
    loop.set_default_executor(executor)

    def main_module() -> None:
        runpy.run_path(program, run_name="__main__")

    try:
        loop.run_until_complete(runtime.run_in_stack(main_module))
    finally:
        executor.shutdown(wait=True)
        loop.close()
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def _exit_code(error: SystemExit) -> int:
    """`sys.exit("text")` is a diagnostic, `sys.exit(number)` an exit code."""
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    from pulumi import log

    log.error(str(error.code))
    return BAIL_EXIT_CODE


def _own_frames(error: BaseException) -> str:
    """The traceback from the program's first frame on: those before it are this file and runpy."""
    hidden = {__file__, runpy.__file__, "<frozen runpy>"}
    own = frame = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename in hidden:
            own = frame.tb_next
        frame = frame.tb_next
    return "".join(traceback.format_exception(type(error), error, own))


def _folder(program: str) -> Path:
    path = Path(program)
    return path if path.is_dir() else path.parent


def _interrupted(*_: object) -> NoReturn:
    # The engine has cancelled this program.
    os._exit(130)


def _die_with(parent: int) -> None:
    """Exit when the language host has died."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_CHECK_SECONDS)
        os._exit(130)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    sys.exit(run_plugin() if sys.argv[1] == "--plugin" else main())
