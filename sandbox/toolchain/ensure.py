"""Make every tool available: from PATH, else the cache, else a download, else a build; show progress."""

from __future__ import annotations

import shutil
import threading
import time
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from sandbox import lock, paths
from sandbox.reporting import SandboxError
from sandbox.toolchain.builder import BYTES_NEEDED, Builder, BuildError, Cancelled, go_build_cache
from sandbox.toolchain.download import (
    DownloadError,
    get_release,
    reachable,
    release_for_this_machine,
)
from sandbox.toolchain.lookup import (
    GoUnavailableError,
    ToolLocation,
    cache_entry,
    find_go,
    find_in_cache,
    find_on_path,
)
from sandbox.toolchain.progress import BuildTable
from sandbox.toolchain.releases import LOOK, Release
from sandbox.toolchain.tools import MONITORING_TOOLS, ON_DEMAND_TOOLS, TOOLS, Tool

BUILDS_AT_ONCE = 2
"""A build's link step uses one core only; a second build uses the others."""
DOWNLOADS_AT_ONCE = 4


class ToolchainError(SandboxError):
    """A tool is missing and cannot be built; the text is one line."""


@dataclass(frozen=True)
class Toolchain:
    """Paths of all binaries by name, and the asset folder of each tool by tool name."""

    binaries: dict[str, Path]
    assets: dict[str, Path]
    sources: dict[str, str]

    @property
    def can_monitor(self) -> bool:
        return self.sources.keys() >= set(MONITORING_TOOLS)


def ensure(console: Console, *names: str) -> Toolchain:
    """Return the named tools, ready to run; without names, all tools of a sandbox.

    Takes well under 2 s when everything is cached. `sources` holds each tool's origin: PATH, cache, downloaded
    or built. What upstream publishes is downloaded where its sites answer, and built from modules otherwise.

    Raises ToolchainError: an unknown name, no Go, too little disk space, or a failed build: its log is named.
    """
    known = {tool.name: tool for tool in (*TOOLS, *ON_DEMAND_TOOLS)}
    if unknown := [name for name in names if name not in known]:
        raise ToolchainError(
            f"tool {', '.join(unknown)}: not in the table; it has {', '.join(known)}; name one of them"
        )
    wanted = [known[name] for name in names] or list(TOOLS)
    found = {tool.name: hit for tool in wanted if (hit := _find_ready(tool))}
    missing = [tool for tool in wanted if tool.name not in found]
    if missing:
        waiting = "Another sandbox is building the toolchain; waiting for it to finish"
        with lock.held(paths.cache() / "toolchain" / ".lock", lambda _: console.print(waiting)):
            # Another process may have built tools while this one waited.
            found |= {tool.name: hit for tool in missing if (hit := find_in_cache(tool))}
            if missing := [tool for tool in missing if tool.name not in found]:
                found |= _install_all(missing, console)
    return _toolchain(found)


def ensure_for_runs(console: Console) -> Toolchain:
    """Return the tools that a run needs, and those of monitoring if they need no build.

    Raises ToolchainError: as `ensure`.
    """
    needed = [tool.name for tool in TOOLS if tool.name not in MONITORING_TOOLS]
    made, more = ensure(console, *needed), find(*MONITORING_TOOLS)
    return Toolchain(
        made.binaries | more.binaries, made.assets | more.assets, made.sources | more.sources
    )


def find(*names: str) -> Toolchain:
    """Return those of the named tools that are ready to run; builds and downloads nothing."""
    found = {tool.name: hit for tool in TOOLS if tool.name in names and (hit := _find_ready(tool))}
    return _toolchain(found)


def _toolchain(found: dict[str, ToolLocation]) -> Toolchain:
    return Toolchain(
        binaries={name: path for hit in found.values() for name, path in hit.binaries.items()},
        assets={name: hit.assets for name, hit in found.items()},
        sources={name: hit.source for name, hit in found.items()},
    )


def _find_ready(tool: Tool) -> ToolLocation | None:
    if binaries := find_on_path(tool):
        return ToolLocation("PATH", binaries, cache_entry(tool) / "assets")
    return find_in_cache(tool)


def _install_all(missing: list[Tool], console: Console) -> dict[str, ToolLocation]:
    table = BuildTable([tool.name for tool in missing], console)
    with table.shown():
        ready = _download_all(missing, table)
        builds = [tool for tool in missing if tool.name not in ready]
        if builds:
            _require_disk_space()
        try:
            with_go = [tool for tool in missing if tool in builds or tool.assets]
            # One recipe may need a newer Go than the others, which are not compiled anew for its sake.
            go = {minimum: find_go(minimum) for minimum in {tool.go for tool in with_go}}
        except GoUnavailableError as error:
            raise ToolchainError(str(error)) from error
        jobs = _run_jobs(Builder(go, paths.state().logs), missing, ready, table)
    for recipe, job in jobs.items():
        why = job.exception()
        if isinstance(why, BuildError):
            raise ToolchainError(f"{why} (progress is kept; run the same command again)") from why
        if why is not None and not isinstance(why, Cancelled):
            raise ToolchainError(f"{recipe.name}: {why}") from why
    shutil.rmtree(go_build_cache(), ignore_errors=True)
    return {name: hit for job in jobs.values() for name, hit in job.result().items()}


def _download_all(missing: list[Tool], table: BuildTable) -> dict[str, Path]:
    """Download what is published and can be had; return the folder of the executables by tool name."""
    releases = {
        tool.name: release for tool in missing if (release := release_for_this_machine(tool))
    }
    looks = {site: f"{site}/{LOOK[site]}" for site in {r.site for r in releases.values()}}
    answered = reachable(looks.values())
    for site in sorted(site for site, url in looks.items() if url not in answered):
        waiting = sorted(name for name, release in releases.items() if release.site == site)
        table.note(f"{site}: not reachable; building {', '.join(waiting)} from Go modules")
    stop = threading.Event()

    def get(tool: Tool, release: Release) -> Path | None:
        folder = cache_entry(tool).with_name(f".download-{tool.key}")
        try:
            get_release(tool, release, folder, lambda text: table.report(tool.name, text), stop)
        except DownloadError as why:
            shutil.rmtree(folder, ignore_errors=True)
            table.note(f"{tool.name}: {why}; building it from Go modules")
            return None
        table.done(tool.name, "downloaded")
        return folder

    with ThreadPoolExecutor(DOWNLOADS_AT_ONCE) as pool:
        jobs = {
            tool.name: pool.submit(get, tool, releases[tool.name])
            for tool in missing
            if tool.name in releases and looks[releases[tool.name].site] in answered
        }
        try:
            return {name: folder for name, job in jobs.items() if (folder := job.result())}
        except KeyboardInterrupt:
            stop.set()
            raise


def _run_jobs(
    builder: Builder, missing: list[Tool], ready: dict[str, Path], table: BuildTable
) -> dict[Path, Future[dict[str, ToolLocation]]]:
    """Install all, one job per recipe; the first failure or an interrupt stops the others."""
    graphs: dict[Path, list[Tool]] = {}
    for tool in missing:
        graphs.setdefault(tool.recipe, []).append(tool)
    with ThreadPoolExecutor(BUILDS_AT_ONCE) as pool:
        jobs = {
            recipe: pool.submit(_install_graph, builder, tools, ready, table)
            for recipe, tools in graphs.items()
        }
        try:
            done, _ = wait(jobs.values(), return_when=FIRST_EXCEPTION)
        except KeyboardInterrupt:
            builder.cancel()
            raise
        if any(job.exception() for job in done):
            builder.cancel()
    return jobs


def _install_graph(
    builder: Builder, tools: list[Tool], ready: dict[str, Path], table: BuildTable
) -> dict[str, ToolLocation]:
    """Install tools of one recipe. Their packages are compiled together, once; then each is linked."""
    builds = [tool for tool in tools if tool.binaries and tool.name not in ready]
    if len(builds) > 1 and not any(tool.own_options for tool in builds):
        builder.compile_packages(builds, lambda text: table.report(builds[0].name, text))
    with ThreadPoolExecutor(BUILDS_AT_ONCE) as pool:
        made = pool.map(lambda tool: _install(builder, tool, ready.get(tool.name), table), tools)
        return dict(zip((tool.name for tool in tools), made, strict=True))


def _install(
    builder: Builder, tool: Tool, downloaded: Path | None, table: BuildTable
) -> ToolLocation:
    started = time.monotonic()

    found = replace(
        builder.build(tool, lambda text: table.report(tool.name, text), downloaded),
        source="downloaded" if downloaded else "built",
    )
    table.done(tool.name, f"{found.source} in {time.monotonic() - started:.0f} s")
    return found


def _require_disk_space() -> None:
    folder = paths.cache()
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < BYTES_NEEDED:
        raise ToolchainError(
            f"disk of {folder}: {free / 1024**3:.1f} GiB free; the builds need"
            f" {BYTES_NEEDED / 1024**3:.0f} GiB; make room or set TRAINYARD_CACHE to another disk"
        )
