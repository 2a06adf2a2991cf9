"""infra/requirements.txt: what jobs install that only run Pulumi and `trainyard`, without torch."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

from tests.unit.test_import_rules import ROOMS
from tools.imports import ROOT, files, imports

PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;]+)", re.MULTILINE)


def pins(name: str) -> dict[str, str]:
    return {package.lower(): version for package, version in PIN.findall((ROOT / name).read_text())}


def module_file(module: str) -> Path | None:
    path = ROOT.joinpath(*module.split("."))
    return next((p for p in (path.with_suffix(".py"), path / "__init__.py") if p.is_file()), None)


def reachable() -> Iterator[tuple[str, Path]]:
    """Every module that the program and `trainyard` may import, in functions too, with the file that does."""
    waiting = [ROOT / "__main__.py", *files("infra", "ops")]
    waiting = [path for path in waiting if path not in ELSEWHERE]
    seen = set(waiting)
    while waiting:
        path = waiting.pop()
        for base, names in imports(path):
            yield base, path
            # A package imports its __init__ files on the way.
            parts = base.split(".")
            parents = [".".join(parts[: n + 1]) for n in range(len(parts))]
            for module in [*parents, *(f"{base}.{name}" for name in names)]:
                file = module_file(module) if module.split(".")[0] in ROOMS else None
                if file and file not in seen:
                    seen.add(file)
                    waiting.append(file)


ELSEWHERE: Final = {
    # The first has the settings of optimizers as well, which run files are checked with.
    ROOT / "trainer/optimizer.py",
    ROOT / "trainer/eager.py",
    # Serves metrics in the cluster, in the image of ops/image.
    ROOT / "ops/exposition.py",
    # What `trainyard init` copies.
    *(ROOT / "ops/submission/example").iterdir(),
}
"""Files whose other imports are needed in a run or in another image only."""


def test_all_that_the_program_imports_is_installed() -> None:
    installed = set(pins("infra/requirements.txt"))
    providers = metadata.packages_distributions()
    missing = set()
    for module, path in reachable():
        top = module.split(".")[0]
        # What saves tensors is imported in a run only.
        elsewhere = path.parent == ROOT / "trainyard/tensors" or path in ELSEWHERE
        if top in ROOMS or top in sys.stdlib_module_names or elsewhere:
            continue
        names = {re.sub(r"[-_.]+", "-", one).lower() for one in providers.get(top, [top])}
        if not names & installed:
            missing.add(f"{path.relative_to(ROOT)} imports {module}")
    assert missing == set()


def test_the_environment_has_no_torch_and_the_versions_of_the_whole_one() -> None:
    some, every = pins("infra/requirements.txt"), pins("requirements.txt")
    assert some and some.items() <= every.items()
    assert not {"torch", "transformers", "moto", "pytest"} & set(some)
    assert "--hash=sha256:" in (ROOT / "infra/requirements.txt").read_text()
