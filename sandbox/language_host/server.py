"""The calls of the engine's language protocol that Python programs and policy packs need."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import empty_pb2, json_format
from pulumi.runtime.proto import language_pb2, language_pb2_grpc, plugin_pb2

from sandbox.language_host import interpreter
from sandbox.language_host.processes import ChildProcesses, stream_output

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
        env = interpreter.environment(
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
        child = self._children.start(
            command, cwd=cwd, env=interpreter.environment(python, extra), piped=True
        )
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
        return interpreter.find_python(info.root_directory, _options(info))
    except interpreter.InterpreterError as error:
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
