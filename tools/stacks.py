"""`python3 -m tools.stacks`: print the stacks that workflows preview, deploy and watch, as a JSON list.

Every `Pulumi.STACK.yaml` counts but those with simulated nodes, which are the sandbox's. `suffix` is what the
names of GitHub variables end with, since they have no hyphens. Standard library only: it runs before anything is
installed.
"""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_SIMULATED = re.compile(r"^[\s-]*nodes:\s*(process|kwok)\b", re.MULTILINE)


def stacks(folder: Path) -> list[dict[str, str]]:
    """Return name and suffix of each stack of a folder, by name."""
    found = []
    for file in sorted(folder.glob("Pulumi.*.yaml")):
        if not _SIMULATED.search(file.read_text(encoding="utf-8")):
            name = file.name.split(".")[1]
            found.append({"stack": name, "suffix": name.upper().replace("-", "_")})
    return found


def main() -> int:
    """Print the list."""
    print(json.dumps(stacks(ROOT)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
