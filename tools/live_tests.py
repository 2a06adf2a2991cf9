"""`python -m tools.live_tests`: run the tests with a cluster, real ranks and moto, as `make test` and CI do.

Of the files and tests marked `sampled` it runs some (`SAMPLE_S` in tests/conftest.py), drawn with a seed that is
printed and can be given as TRAINYARD_TEST_SEED; `make soak` runs all.

Two files run at a time, so a test may fail because another took the processors. Up to `AGAIN` tests that failed
run once more, one at a time. The last lines name those that passed then: they depend on the machine's speed and
have to be mended. Exit 0 if every test passed in one of both runs, 1 if one failed twice or more failed at first;
any other code is pytest's.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

FOLDERS: Final = ("tests/sandbox", "tests/trainer", "tests/aws")
AGAIN: Final = 5
"""With more, what was tested is broken, not slow."""
# The longest file is the first, and starts first.
_BESIDE: Final = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", "--durations=10")
_SEED: Final = "TRAINYARD_TEST_SEED"
_FAILED: Final = 1
"""Exit code of pytest: tests ran, and some failed."""


def _pytest(cache: Path, arguments: Sequence[str]) -> int:
    options = ["-q", "-o", f"cache_dir={cache}"]
    return subprocess.run([sys.executable, "-m", "pytest", *options, *arguments]).returncode


def _failed(cache: Path) -> list[str]:
    """The tests that the last run with this cache left failed."""
    file = cache / "v/cache/lastfailed"
    return sorted(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else []


def run(folders: Sequence[str], beside: Sequence[str], cache: Path) -> int:
    """Run the tests of the folders, what failed once more alone, and return the exit code."""
    code = _pytest(cache, [*beside, *folders])
    failed = _failed(cache)
    if code != _FAILED or not 0 < len(failed) <= AGAIN:
        return code
    print(f"{len(failed)} failed; once more, one at a time:", *failed, sep="\n  ", flush=True)
    code = _pytest(cache, failed)
    still = set(_failed(cache))
    for name in failed:
        print(f"{name}: failed {'twice' if name in still else 'beside other tests, passed alone'}")
    return code


def _seed() -> str:
    seed = os.environ.get(_SEED) or str(random.SystemRandom().randrange(10**6))
    print(f"{_SEED}={seed} draws the long tests of this run", flush=True)
    return seed


if __name__ == "__main__":
    try:
        with tempfile.TemporaryDirectory() as folder:
            sys.exit(run(FOLDERS, [*_BESIDE, "--sample", _seed()], Path(folder)))
    except KeyboardInterrupt:
        sys.exit(130)
