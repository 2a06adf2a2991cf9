"""Run a script once standard input is closed, with what takes seconds to import already there.

`python -m bench.preloaded SCRIPT ARGUMENTS`
"""

import runpy
import sys
from pathlib import Path

import trainyard.elastic  # noqa: F401

if __name__ == "__main__":
    print("preloaded", flush=True)
    sys.stdin.read()
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
