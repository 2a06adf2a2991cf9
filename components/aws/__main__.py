"""The same package with what a Platform with a cluster of its own on AWS needs."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from components.__main__ import serve

    serve()
