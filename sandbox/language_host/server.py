"""The calls of the engine's language protocol that Python programs and policy packs need."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import IO, Any, Literal

import grpc
from google.protobuf import empty_pb2, json_format
from pulumi.runtime.proto import language_pb2, language_pb2_grpc, plugin_pb2

from sandbox.paths import PROJECT

TERM_SECONDS = 3.0
"""Time between SIGTERM and SIGKILL."""

CHUNK_BYTES = 64 * 1024

Chunk = tuple[Literal["stdout", "stderr"], bytes]


class ChildProcesses:
    """Starts processes and stops those still running when the host stops."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def start(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        piped: bool,
    ) -> subprocess.Popen[bytes]:
        """Start a child; `piped`: capture its output, else it inherits the host's.

        Raises RuntimeError while the host is stopping, OSError when the command cannot start.
        """
        pipe = subprocess.PIPE if piped else None
        with self._lock:
            if self._stopped:
                raise RuntimeError("the language host is stopping")
            child = subprocess.Popen(
                list(command),
                cwd=cwd,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=pipe,
                stderr=pipe,
                start_new_session=True,
            )
            self._running.add(child)
        return child

    def wait(self, child: subprocess.Popen[bytes]) -> int:
        """Wait for a child and forget it. Negative exit codes are signals, as in subprocess."""
        code = child.wait()
        with self._lock:
            self._running.discard(child)
        return code

    def end(self, child: subprocess.Popen[bytes]) -> None:
        """Send SIGTERM to the child's group, and SIGKILL after `TERM_SECONDS`.

        An ended child is not signalled: its id may be reused.
        """
        if child.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(TERM_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            running = list(self._running)
        enders = [threading.Thread(target=self.end, args=(child,)) for child in running]
        for ender in enders:
            ender.start()
        for ender in enders:
            ender.join()


def stream_output(child: subprocess.Popen[bytes]) -> Iterator[Chunk]:
    """Yield the output of a piped child until it has closed both streams."""
    chunks: queue.Queue[Chunk | None] = queue.Queue()

    def pump(name: Literal["stdout", "stderr"], stream: IO[bytes]) -> None:
        with stream:
            while data := os.read(stream.fileno(), CHUNK_BYTES):
                chunks.put((name, data))
        chunks.put(None)

    assert child.stdout is not None and child.stderr is not None
    for arguments in (("stdout", child.stdout), ("stderr", child.stderr)):
        threading.Thread(target=pump, args=arguments, daemon=True).start()
    open_streams = 2
    while open_streams:
        chunk = chunks.get()
        if chunk is None:
            open_streams -= 1
        else:
            yield chunk


class InterpreterError(Exception):
    """The Python environment of a program is not usable; the text is one line."""


def find_python(root: str, options: Mapping[str, Any]) -> Path:
    """The interpreter that a project or a policy pack names.

    `root` is the folder that relative paths start from, `options` the `runtime.options` of its
    YAML file. Without `virtualenv` it is the interpreter that runs this host.
    Raises InterpreterError when the named environment does not exist.
    """
    named = options.get("virtualenv")
    if not named:
        return Path(sys.executable)
    python = Path(root, str(named)) / "bin" / "python"
    if not python.exists():
        raise InterpreterError(
            f"the virtual environment {named!r} of {root} has no bin/python; "
            "create it (make env), or remove runtime.options.virtualenv"
        )
    return python


def environment(python: Path, extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child that runs on `python`: its `bin` is first on PATH."""
    env = {**os.environ, **extra}
    env["PATH"] = f"{python.parent}{os.pathsep}{env.get('PATH', os.defpath)}"
    env["VIRTUAL_ENV"] = str(python.parent.parent)
    env.pop("PYTHONHOME", None)
    # The program must not import from the host's checkout by accident.
    inherited = env.pop("PYTHONPATH", "").split(os.pathsep)
    kept = [entry for entry in inherited if entry and Path(entry).resolve() != PROJECT]
    if kept:
        env["PYTHONPATH"] = os.pathsep.join(kept)
    return env


PROGRAM = Path(__file__).with_name("program.py")
"""Runs a program; started by path, since the program's environment lacks `sandbox`."""

BAIL_EXIT_CODE = 32
"""The program has already reported its error."""


class LanguageHost(language_pb2_grpc.LanguageRuntimeServicer):
    """Serves one engine. Thread-safe: the engine runs programs and policy packs concurrently."""

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._children = ChildProcesses()

    def stop(self) -> None:
        self._children.stop()

    def Handshake(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._engine = request.engine_address or self._engine
        return language_pb2.LanguageHandshakeResponse()

    def GetPluginInfo(self, request: Any, context: grpc.ServicerContext) -> Any:
        return plugin_pb2.PluginInfo(version=metadata.version("pulumi"))

    def Cancel(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.stop()
        return empty_pb2.Empty()

    def GetRequiredPackages(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Name none: the engine then asks for a plugin when its first resource is registered."""
        return language_pb2.GetRequiredPackagesResponse()

    def InstallDependencies(
        self, request: Any, context: grpc.ServicerContext
    ) -> Iterator[language_pb2.InstallDependenciesResponse]:
        """`pip install -r requirements.txt` into the project's environment, made when missing."""
        folder = Path(request.info.program_directory or request.directory)
        options = _options(request.info)
        root = request.info.root_directory or str(folder)
        for command in _install_commands(root, folder, options):
            child = self._children.start(
                command, cwd=folder, env=environment(Path(command[0]), {}), piped=True
            )
            for stream, data in stream_output(child):
                yield language_pb2.InstallDependenciesResponse(**{stream: data})
            if code := self._children.wait(child):
                context.abort(
                    grpc.StatusCode.UNKNOWN, f"{' '.join(command)} failed with exit code {code}"
                )

    def Run(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Run a program. `bail` in the response: it has reported its error."""
        command = [
            str(_python(request.info, context)),
            "-u",
            str(PROGRAM),
            *_run_flags(request, self._engine),
            str(_entry(request.info)),
            *request.args,
        ]
        env = environment(
            Path(command[0]),
            {
                "PULUMI_CONFIG": json.dumps(dict(request.config)),
                "PULUMI_CONFIG_SECRET_KEYS": json.dumps(list(request.configSecretKeys)),
            },
        )
        cwd = Path(request.pwd or request.info.program_directory)
        child = self._children.start(command, cwd=cwd, env=env, piped=False)
        context.add_callback(lambda: self._children.end(child))
        code = self._children.wait(child)
        if code == BAIL_EXIT_CODE:
            return language_pb2.RunResponse(bail=True)
        if code < 0:
            return language_pb2.RunResponse(error=f"the program was ended by signal {-code}")
        if code:
            return language_pb2.RunResponse(error=f"the program exited with code {code}")
        return language_pb2.RunResponse()

    def RunPlugin(
        self, request: Any, context: grpc.ServicerContext
    ) -> Iterator[language_pb2.RunPluginResponse]:
        """Run a policy pack (kind `analyzer`) or another Python plugin, streaming its output."""
        python = _python(request.info, context)
        folder = request.info.program_directory
        if request.kind == "analyzer":
            command = [str(python), "-u", "-m", "pulumi.policy", *request.args, folder]
        else:
            command = [str(python), "-u", str(PROGRAM), "--plugin", folder, *request.args]
        extra = dict(entry.split("=", 1) for entry in request.env if "=" in entry)
        cwd = Path(folder if request.kind == "analyzer" else request.pwd or folder)
        child = self._children.start(command, cwd=cwd, env=environment(python, extra), piped=True)
        context.add_callback(lambda: self._children.end(child))
        for stream, data in stream_output(child):
            if stream == "stdout":
                yield language_pb2.RunPluginResponse(stdout=data)
            else:
                yield language_pb2.RunPluginResponse(stderr=data)
        yield language_pb2.RunPluginResponse(exitcode=self._children.wait(child))


def _options(info: Any) -> Mapping[str, Any]:
    return json_format.MessageToDict(info.options) if info.HasField("options") else {}


def _python(info: Any, context: grpc.ServicerContext) -> Path:
    try:
        return find_python(info.root_directory, _options(info))
    except InterpreterError as error:
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        raise


def _entry(info: Any) -> Path:
    folder = Path(info.program_directory)
    return folder if info.entry_point in ("", ".") else folder / info.entry_point


def _run_flags(request: Any, engine: str) -> list[str]:
    return [
        f"--monitor={request.monitor_address}",
        f"--engine={engine}",
        f"--project={request.project}",
        f"--stack={request.stack}",
        f"--organization={request.organization}",
        f"--root-directory={request.info.root_directory}",
        f"--parallel={request.parallel}",
        f"--dry-run={'true' if request.dryRun else 'false'}",
    ]


def _install_commands(root: str, folder: Path, options: Mapping[str, Any]) -> Iterator[list[str]]:
    python = Path(sys.executable)
    if named := options.get("virtualenv"):
        target = Path(root, str(named))
        python = target / "bin" / "python"
        if not python.exists():
            yield [sys.executable, "-m", "venv", str(target)]
    if (folder / "requirements.txt").exists():
        yield [str(python), "-m", "pip", "install", "-r", "requirements.txt"]
