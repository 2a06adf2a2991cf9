"""`python -m infra.render STACK`: see infra/cli/render.py. Scripts rely on this name."""

import sys

from infra.cli.render import main

if __name__ == "__main__":
    sys.exit(main())
