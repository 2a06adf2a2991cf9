"""Run the tests that a change can break: `python -m tools.run_tests gate|live`.

A change is what differs from the last commit that is a day older than HEAD, uncommitted files included. The
variable TRAINYARD_TEST_BASE names another commit, or `all`: every test runs. `gate` (tests/unit, golden,
policy) runs all that tools/selection.py finds. `live` (tests/sandbox, trainer, aws) runs what is marked `core`,
then the nearest of what the change can break, for `LIVE_S` seconds of tests. What does not run is counted or
named; the workflow `soak` runs it every night. Other arguments go to pytest.

Two files run at a time, so a test may fail because another took the processors. Up to `AGAIN` tests that failed
run again, one at a time. The last lines name those that passed then, with the seed of their random choices:
each is a fault to mend, and fails a run of `all`. Exit 0 if every test passed in one of both runs, 1 if one
failed twice or more failed at first; any other code is pytest's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.imports import ROOT
from tools.selection import Selection, Unit, distances, select, units, uses

SUITES: Final = {
    "gate": ("tests/unit", "tests/golden", "tests/policy"),
    "live": ("tests/sandbox", "tests/trainer", "tests/aws"),
}
LIVE_S: Final = 840.0
"""Seconds of live tests for one change, over both workers; what is marked `core` included. The longest file takes
450 of them, so fewer would not end sooner."""
AGAIN: Final = 5
"""With more, what was tested is broken, not slow."""
_BESIDE: Final = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", "--durations=10")
_SEED: Final = "TRAINYARD_TEST_SEED"
_BASE: Final = "TRAINYARD_TEST_BASE"
_ALL: Final = "all"
_FAILED: Final = 1
"""Exit code of pytest: tests ran, and some failed."""
_NONE: Final = 5
"""Exit code of pytest: no tests were selected."""


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True)
    return done.stdout.splitlines() if done.returncode == 0 else []


def _base() -> str | None:
    """The commit that a change is compared with; None: everything counts as changed.

    Raises SystemExit with one line for a commit that this clone does not have.
    """
    given = os.environ.get(_BASE, "")
    if given and given != _ALL and not _git("rev-parse", "--verify", f"{given}^{{commit}}"):
        raise SystemExit(
            f"{_BASE}: {given} is not a commit of this clone; valid: one of `git log`, or `{_ALL}`;"
            " fetch it or name another"
        )
    if given:
        return None if given == _ALL else given
    date = _git("log", "-1", "--format=%ct")
    day_before = f"--before={int(date[0]) - 24 * 3600}" if date else ""
    return next(iter(_git("rev-list", "-1", "--first-parent", day_before, "HEAD")), None)


def _select(suite: str) -> Selection:
    """Select the tests of a suite, and print what runs, what does not, and why."""
    new = _git("ls-files", "--others", "--exclude-standard")
    files = sorted({*_git("ls-files"), *new})
    base = _base()
    changed = files if base is None else _git("diff", "--name-only", "--no-renames", base)
    changed = sorted({*changed, *new})
    every: list[Unit] = []
    for folder in SUITES[suite]:
        for path in sorted((ROOT / folder).rglob("test_*.py")):
            every += units(path, path.relative_to(ROOT).as_posix())
    near = distances(uses(ROOT, [f for f in files if not f.endswith(".py")]), changed)
    limit = LIVE_S if suite == "live" and os.environ.get(_BASE) != _ALL else float("inf")
    found = select(every, near, limit)
    since = f"that changed since {base[:8]}" if base else "of the project"
    print(f"{suite}: what {len(changed)} files {since} can break ({_BASE}=COMMIT or {_ALL})")
    print(f"  runs: {_files(found.chosen)}")
    print(f"  does not run, because nothing that it uses has changed: {_files(found.unaffected)}")
    if found.left_out:
        names = (f"\n    {unit.id} ({unit.seconds:.0f} s)" for unit in found.left_out)
        print(f"  runs at night, because all would take over {limit:.0f} s:", *names, sep="")
    sys.stdout.flush()
    return found


def _files(found: Sequence[Unit]) -> str:
    core = len({unit.file for unit in found if unit.core})
    always = f", {core} of them whatever has changed" if core else ""
    return f"{len({unit.file for unit in found})} files{always}"


def _pytest(cache: Path, arguments: Sequence[str]) -> int:
    options = ["-q", "-o", f"cache_dir={cache}"]
    return subprocess.run([sys.executable, "-m", "pytest", *options, *arguments]).returncode


def _failed(cache: Path) -> list[str]:
    """The tests that the last run with this cache left failed."""
    file = cache / "v/cache/lastfailed"
    return sorted(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else []


def run(arguments: Sequence[str], cache: Path, strict: bool) -> int:
    """Run pytest, what failed once more alone, and return the exit code.

    strict: A test that failed and then passed fails the run as well.
    """
    code = _pytest(cache, arguments)
    failed = _failed(cache)
    # A name without a test is a file, or a worker, that could not read its tests.
    if code != _FAILED or not 0 < len(failed) <= AGAIN or not all("::" in it for it in failed):
        return 0 if code == _NONE else code
    print(f"{len(failed)} failed; once more, one at a time:", *failed, sep="\n  ", flush=True)
    options = [argument for argument in arguments if argument == "--full"]
    code = _pytest(cache, [*options, *failed])
    still = set(_failed(cache))
    for name in sorted(still):
        print(f"{name}: failed twice")
    passed = [name for name in failed if name not in still]
    print("Tests to mend, failed with others and passed alone:" + ("" if passed else " none"))
    for name in passed:
        print(f"  {_SEED}={os.environ.get(_SEED)} python -m pytest {name}")
    return code or int(strict and bool(passed))


def main(arguments: Sequence[str]) -> int:
    """Run a suite's selected tests, or the files named in `arguments` with pytest's other options."""
    if not os.environ.get(_SEED):
        os.environ[_SEED] = str(int(next(iter(_git("rev-parse", "HEAD")), "0")[:5], 16))
    print(f"{_SEED}={os.environ[_SEED]} seeds the random choices of this run", flush=True)
    chosen = [argument for argument in arguments if argument not in SUITES]
    for suite in SUITES.keys() & set(arguments):
        chosen += _select(suite).arguments()
    if not chosen:
        return 0
    with tempfile.TemporaryDirectory() as folder:
        return run([*_BESIDE, *chosen], Path(folder), strict=os.environ.get(_BASE) == _ALL)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
