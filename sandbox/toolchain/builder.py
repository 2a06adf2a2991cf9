"""Build a tool from its pinned modules into the cache.

An interrupted build resumes from Go's module cache and a separate build cache; a cache entry appears by one
rename. The build cache is many times the size of its products and is removed when everything is built.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

from sandbox import paths
from sandbox.reporting import Report
from sandbox.toolchain.lookup import ToolLocation, cache_entry, find_in_cache
from sandbox.toolchain.tools import OWN, WHOLE_PACKAGE, Tool, Version

BYTES_NEEDED = 13 * 1024**3
"""Free disk space for a build of everything: 10 GiB were measured with empty caches, without Prometheus and
kube-state-metrics, which add an estimated 2 GiB. 0.8 GiB remain, plus Go's module cache."""

_COMPILED = ("-trimpath", "-gcflags=all=-dwarf=false")
"""Options of what is compiled. Executables are stripped anyway; without debug information a build takes 8 % less
processor time."""

_COPY = "source"
"""Folder of the copies of modules that lack files, or get other ones."""


class BuildError(Exception):
    """A build failed. `log` holds the tools' output."""

    def __init__(self, tool: Tool, step: str, log: Path) -> None:
        super().__init__(f"{tool.name} {tool.version}: {step} failed; read {log}")
        self.log = log


class Cancelled(Exception):
    """This build was stopped, because another one failed or the user interrupted."""


class Builder:
    """Builds tools; `cancel` stops running builds.

    `go`: the command for each `Tool.go`. Downloaded tools that have no assets need none.
    """

    def __init__(self, go: Mapping[Version, Path], logs: Path) -> None:
        self._go = go
        self._logs = logs
        self._running: set[subprocess.Popen[str]] = set()
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        self._cancelled.set()
        for process in list(self._running):
            process.terminate()

    def build(self, tool: Tool, report: Report, downloaded: Path | None = None) -> ToolLocation:
        """Build `tool` into the cache, or move its `downloaded` executables there; fetch its assets.

        Raises BuildError: a step failed; the text names it and the log; Cancelled: `cancel` was called.
        """
        self._logs.mkdir(parents=True, exist_ok=True)
        log = self._logs / f"build-{tool.name}.log"
        log.write_text("")
        final = cache_entry(tool)
        partial = final.with_name(f".partial-{tool.key}")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        report("fetching manifests" if downloaded else "fetching modules")
        self._copy_assets(tool, partial / "assets", log)
        if downloaded:
            downloaded.rename(partial / "bin")
        else:
            (partial / "bin").mkdir()
            for binary in tool.binaries:
                self._compile(
                    tool, tool.package(binary), partial / "bin" / binary.name, log, report
                )
            shutil.rmtree(partial / _COPY, ignore_errors=True)
        shutil.rmtree(final, ignore_errors=True)
        partial.rename(final)
        found = find_in_cache(tool)
        assert found is not None
        return found

    def compile_packages(self, tools: list[Tool], report: Report) -> None:
        """Compile what these tools of one recipe import, all at once, so that `build` only has to link.

        One after the other they would leave cores idle while one links or waits for a large package.
        Raises as `build`.
        """
        self._logs.mkdir(parents=True, exist_ok=True)
        first = tools[0]
        log = self._logs / f"build-{first.graph}.log"
        log.write_text("")
        packages = [tool.package(binary) for tool in tools for binary in tool.binaries]
        report("fetching modules")
        listed = self._go_run(first, "list", ["list", "-deps", *packages], log, capture=True)
        text = f"compiling {', '.join(tool.name for tool in tools)}"
        report(text)
        # Compiles as `go build` does, and links nothing.
        args = ["list", "-export", *_COMPILED, "-v", *packages]
        self._go_run(first, "build", args, log, on_line=_counter(report, text, listed))

    def _compile(self, tool: Tool, package: str, out: Path, log: Path, report: Report) -> None:
        report(f"fetching modules of {out.name}")
        options = [f"-tags={','.join(tool.tags)}"] if tool.tags else []
        options += self._from_copy(tool, out.parent.parent, log)
        listed = self._go_run(tool, "list", ["list", *options, "-deps", package], log, capture=True)
        report(f"compiling {out.name}")
        count = _counter(report, f"compiling {out.name}", listed)
        args = ["build", *options, *_COMPILED, "-v", "-ldflags", f"-s -w {tool.ldflags}".strip()]
        self._go_run(tool, "build", [*args, "-o", str(out), package], log, on_line=count)

    def _from_copy(self, tool: Tool, folder: Path, log: Path) -> list[str]:
        """The option that builds with copies of modules, which have the tool's empty and own files."""
        modules = {tool.module} if tool.empty_files or tool.compact_json else set[str]()
        modules |= set(tool.modules_with_own_files())
        if not modules:
            return []
        pins = folder / f"{_COPY}.mod"
        text = (tool.recipe / "go.mod").read_text()
        for module in sorted(modules):
            copy = folder / _COPY / module
            shutil.copytree(self._folder_of(tool, module, log), copy, copy_function=shutil.copyfile)
            for path in [copy, *copy.rglob("*")]:
                path.chmod(0o755 if path.is_dir() else 0o644)
            for file in tool.own_files(module):
                place = copy / file.relative_to(tool.recipe / OWN / module)
                if file.name == WHOLE_PACKAGE:
                    for other in place.parent.glob("*.go"):
                        other.unlink()
                shutil.copyfile(file, place)
            text += f"\nreplace {module} => {copy}\n"
        for name in tool.empty_files:
            empty = folder / _COPY / tool.module / name
            empty.parent.mkdir(parents=True, exist_ok=True)
            empty.touch()
        for name, source, added in tool.compact_json:
            root = folder / _COPY / tool.module
            values = json.loads((root / source).read_text()) | dict(added)
            (root / name).write_text(json.dumps(values, separators=(",", ":")))
        pins.write_text(text)
        shutil.copyfile(tool.recipe / "go.sum", pins.with_suffix(".sum"))
        return [f"-modfile={pins}"]

    def _folder_of(self, tool: Tool, module: str, log: Path) -> Path:
        """The folder of a module of which files are replaced."""
        own = tool.own_files(module)
        if not own:
            return self._module_folder(tool, log)
        # By a package: some proxies serve no metadata of a module between two releases, only its files.
        package = own[0].parent.relative_to(tool.recipe / OWN).as_posix()
        args = ["list", "-f", "{{.Module.Dir}}", package]
        return Path(self._go_run(tool, "download", args, log, capture=True).strip())

    def _module_folder(self, tool: Tool, log: Path) -> Path:
        args = ["mod", "download", "-json", tool.module]
        return Path(json.loads(self._go_run(tool, "download", args, log, capture=True))["Dir"])

    def _copy_assets(self, tool: Tool, into: Path, log: Path) -> None:
        into.mkdir(parents=True, exist_ok=True)
        if not tool.assets:
            return
        source = self._module_folder(tool, log)
        for folder in tool.assets:
            shutil.copytree(source / folder, into / folder, copy_function=shutil.copyfile)
        for path in [into, *into.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)

    def _go_run(
        self,
        tool: Tool,
        step: str,
        args: list[str],
        log: Path,
        *,
        capture: bool = False,
        on_line: Report | None = None,
    ) -> str:
        if self._cancelled.is_set():
            raise Cancelled
        go = self._go[tool.go]
        lines: list[str] = []
        with log.open("a") as out:
            process = subprocess.Popen(
                [str(go), *args],
                cwd=tool.recipe,
                env=_environment(go),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=out if capture else subprocess.STDOUT,
                text=True,
            )
            self._running.add(process)
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line)
                if not capture:
                    out.write(line)
                    out.flush()
                if on_line is not None:
                    on_line(line.strip())
            code = process.wait()
        self._running.discard(process)
        if self._cancelled.is_set():
            raise Cancelled
        if code != 0:
            raise BuildError(tool, f"go {step}", log)
        return "".join(lines)


def _counter(report: Report, text: str, listed: str) -> Report:
    """Return what counts the compiled packages, one per line, of those that `go list` has named."""
    total, seen = len(listed.splitlines()), 0

    def count(_line: str) -> None:
        nonlocal seen
        seen += 1
        report(f"{text}: {min(seen, total)} of {total} packages")

    return count


def go_build_cache() -> Path:
    return paths.cache() / "toolchain" / ".go-build"


def _environment(go: Path) -> dict[str, str]:
    """Environment of go commands: no C compiler, no toolchain download, none of the user's flags."""
    env = {k: v for k, v in os.environ.items() if k not in {"GOFLAGS", "GOOS", "GOARCH", "GOWORK"}}
    return env | {
        "CGO_ENABLED": "0",
        "GOCACHE": str(go_build_cache()),
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-mod=readonly -buildvcs=false",
        "GOROOT": str(go.resolve().parent.parent),
    }
