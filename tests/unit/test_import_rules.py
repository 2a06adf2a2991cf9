"""Import rules between packages, read from the syntax trees; `__main__` modules compose."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

import pytest

from tools.imports import ROOT, files, imported, imports, module_imports, module_paths

ROOMS = (
    "bootstrap",
    "components",
    "infra",
    "trainer",
    "training",
    "trainyard",
    "policies",
    "sandbox",
    "ops",
    "bench",
    "tools",
)


def offenders(paths: Iterator[Path], *forbidden: str) -> list[str]:
    """`FILE imports MODULE` for every import of a forbidden module or of one below it."""
    return [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in paths
        for module in sorted(imported(path))
        if any(module == name or module.startswith(f"{name}.") for name in forbidden)
    ]


def inner(*folders: str) -> Iterator[Path]:
    """Python files of folders, except `__main__` modules."""
    return (path for path in files(*folders) if path.name != "__main__.py")


def test_platform_does_not_import_runs() -> None:
    assert offenders(files("infra"), "trainer", "training", "trainyard") == []


def foreign_imports(root: Path) -> list[str]:
    """Imports of trainyard/ beyond the standard library.

    An adapter may import its framework, elastic groups and checkpoints of tensors torch; `LIBRARIES` are others.
    """
    package = root / "trainyard"
    return [
        f"{path.relative_to(package)} imports {base}"
        for path in sorted(package.rglob("*.py"))
        for base in sorted({base for base, _ in imports(path, root)})
        if (top := base.partition(".")[0]) not in {*sys.stdlib_module_names, "trainyard"}
        and (path.relative_to(package).as_posix(), top) not in LIBRARIES
        and (top in ROOMS or path.parent.name not in ("adapters", "elastic", "tensors"))
    ]


LIBRARIES: Final = {
    ("store/manifest.py", "blake3"),
    ("objects/connection.py", "botocore"),
    ("tracking.py", "mlflow"),
}
"""Imported when they are used first; what works without them, the hash and a run's folder, stays usable."""


def test_the_runtime_library_imports_only_the_standard_library() -> None:
    assert foreign_imports(ROOT) == []


def test_an_adapter_may_import_its_framework_but_nothing_of_the_repository(tmp_path: Path) -> None:
    adapters = tmp_path / "trainyard" / "adapters"
    adapters.mkdir(parents=True)
    for file in (adapters / "dcp.py", adapters.parent / "notice.py"):
        file.write_text(
            "import torch\nfrom training.spec import RunSpec\nfrom trainyard import run\n"
        )
    assert foreign_imports(tmp_path) == [
        "adapters/dcp.py imports training.spec",
        "notice.py imports torch",
        "notice.py imports training.spec",
    ]


def test_components_take_outputs_and_never_the_stack_configuration() -> None:
    outside = (
        path
        for path in inner("infra", *(f"training/{n}" for n in ("job.py", "gangs", "launchers")))
        if not {"config", "cli"} & set(path.relative_to(ROOT).parts)
    )
    assert offenders(outside, "infra.config") == []


ARROWS: Final = {
    "domain": set[str](),
    "sections": {"domain"},
    "kubernetes": {"domain"},
    "queueing": {"domain", "sections", "kubernetes"},
    "tenancy": {"domain", "sections", "kubernetes"},
    "sites": {"domain", "sections", "kubernetes"},
    "observability": {"domain", "sections", "kubernetes"},
    "addons": {"domain", "sections", "kubernetes", "queueing", "observability"},
    "validation": {"domain", "kubernetes", "queueing"},
    "config": {
        *("domain", "sections", "kubernetes", "sites", "addons", "queueing", "tenancy"),
        *("observability", "validation"),
    },
    "cli": {"domain", "sections", "kubernetes", "sites", "addons", "config"},
}
"""By package of infra/, the packages that it may import: each stands above all that it imports."""


def test_infra_packages_import_only_lower_layers() -> None:
    packages = {path.name for path in (ROOT / "infra").iterdir() if (path / "__init__.py").exists()}
    assert packages == set(ARROWS)
    for package, below in ARROWS.items():
        above = [f"infra.{other}" for other in packages - below - {package}]
        assert offenders(files(f"infra/{package}"), *above) == []


def test_infra_packages_form_no_cycle() -> None:
    assert next(iter(TopologicalSorter(ARROWS).static_order())) == "domain"


def test_infra_has_no_top_level_modules_but_the_documented_command() -> None:
    assert {p.name for p in (ROOT / "infra").glob("*.py")} == {"__init__.py", "render.py"}


def test_aws_libraries_are_imported_by_aws_modules_only() -> None:
    commands = ("addon_settings", "catalog", "catalog_refresh")
    aws = {ROOT / f"infra/cli/{name}.py" for name in commands}
    outside = (p for p in inner("infra", "training") if p.parent.name != "aws" and p not in aws)
    outside = (p for p in [*outside, ROOT / "__main__.py"])
    assert offenders(outside, "pulumi_aws", "pulumi_eks", "boto3", "botocore") == []


def test_run_deployment_never_imports_torch() -> None:
    deploying = files("training", "infra")
    assert offenders(deploying, "torch", "transformers") == []


def test_run_file_checks_never_import_torch() -> None:
    checking = files("trainer/config", "trainer/config_errors.py", "trainer/parallel/layout.py")
    assert offenders(checking, "torch", "transformers", "numpy") == []


def test_nothing_that_runs_in_a_pod_imports_what_deploys_it() -> None:
    deploying = ("pulumi", "pulumi_kubernetes", "infra", "training", "ops")
    assert offenders(files("trainer", "trainyard"), *deploying) == []


NAMED_IN_RUN_FILES: Final = {
    *("trainyard.contract", "trainyard.hashing", "trainyard.objects.location"),
    *("trainyard.placeholders", "trainyard.source"),
    *("trainer.config", "trainer.config_errors"),
    *("trainer.prepare.names", "trainer.prepare.state", "trainer.weights.reference"),
}
"""What a run file says to the library and to the trainer: contract, settings and names."""


def test_what_deploys_runs_imports_names_and_settings_of_what_runs() -> None:
    found = {
        f"{base}.{name}" if base in ("trainer", "trainyard") else base
        for path in files("training")
        for base, names in imports(path)
        for name in names or [""]
        if base.partition(".")[0] in ("trainer", "trainyard")
    }
    allowed = {*NAMED_IN_RUN_FILES, "trainyard."}  # the package's own folder is packed for images
    outside = {
        one for one in found if not any(one == a or one.startswith(f"{a}.") for a in allowed)
    }
    assert outside == set()
    assert offenders(files("training"), "ops", "sandbox", "bench") == []


@pytest.mark.parametrize(
    "module",
    [
        *(
            "training/spec.py",
            "training/program.py",
            "training/source.py",
            "trainer/config_errors.py",
        ),
        *("ops/dev/session.py", "ops/data/transfer.py"),
    ],
)
def test_run_contract_imports_the_standard_library_only(module: str) -> None:
    third_party = {"pulumi", "yaml", "pydantic", "torch", "infra", "trainer", "ops"}
    assert {name.partition(".")[0] for name in imported(ROOT / module)} & third_party == set()


def test_policies_import_the_domain_only() -> None:
    found = {module for path in files("policies") for module in imported(path)}
    assert {
        m for m in found if m.startswith("infra.") and not m.startswith("infra.domain")
    } == set()
    assert offenders(files("policies"), "training", "trainer", "trainyard", "sandbox", "ops") == []


def test_ops_imports_tables_and_the_contract_only() -> None:
    allowed = {
        "infra.domain",
        "infra.observability",
        "training.spec",
        # Pure functions without libraries.
        "training.spot",
    }
    # The modules that advise on runs or submit them read and render them as `pulumi up` does.
    submits = {
        ROOT / "ops/advise.py",
        *(ROOT / f"ops/sweep/{name}.py" for name in ("checks", "files", "submission")),
        ROOT / "ops/submission/render.py",
        ROOT / "ops/dev/command.py",
        ROOT / "ops/dev/pod.py",
        ROOT / "ops/data/pod.py",
    }
    # The one module that prices a stack reads its file.
    prices = ROOT / "ops" / "ledger" / "stack_file.py"
    found = {
        module
        for path in files("ops")
        if path not in {*submits, prices}
        for module in imported(path)
        if module.startswith(("infra.", "training."))
    }
    assert {m for m in found if not any(m == a or m.startswith(f"{a}.") for a in allowed)} == set()


def test_monitoring_data_imports_names_only() -> None:
    watched = ROOT / "infra" / "observability"
    allowed = ("infra.domain.naming", "infra.observability", "yaml")
    resources = {watched / name for name in ("component.py", "monitors.py", "routing.py")}
    found = {
        (path.name, module)
        for path in files("infra/observability")
        if path not in resources
        for module in imported(path)
        if module.partition(".")[0] not in sys.stdlib_module_names
        and module not in ("infra", "infra.domain")
        and not any(module == name or module.startswith(f"{name}.") for name in allowed)
    }
    assert found == set()


def test_nothing_imports_the_sandbox_or_the_tests() -> None:
    rooms = [room for room in ROOMS if room != "sandbox"]
    assert offenders(files(*rooms, "__main__.py"), "sandbox", "tests") == []
    assert offenders(files("sandbox"), "tests") == []


def import_cycle(root: Path, *folders: str) -> list[str]:
    """The modules of one import cycle, the first repeated at the end; empty if there is none."""
    paths = module_paths(root, *folders)
    edges = {module: module_imports(module, paths, root) for module in paths}
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_modules_import_each_other_in_a_cycle() -> None:
    assert (
        import_cycle(ROOT, "infra", "trainer", "training", "trainyard", "ops", "sandbox", "bench")
        == []
    )
    assert import_cycle(ROOT / "policies", ".") == []


def test_an_import_for_type_checking_closes_a_cycle(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("from package.one import f\n")
    (package / "one.py").write_text("from package import two\n")
    (package / "two.py").write_text("import sys\n")
    assert import_cycle(tmp_path, "package") == []
    (package / "two.py").write_text("if TYPE_CHECKING:\n    from package import one\n")
    assert set(import_cycle(tmp_path, "package")) == {"package.one", "package.two"}
    (package / "two.py").write_text("from package import f\n")
    cycle = {"package", "package.one", "package.two"}
    assert set(import_cycle(tmp_path, "package")) == cycle


def test_only_the_configuration_reads_pulumi_config() -> None:
    readers = [
        str(path.relative_to(ROOT))
        for path in files("infra", "training", "__main__.py")
        if "pulumi.Config(" in path.read_text(encoding="utf-8")
    ]
    assert readers == ["infra/config/loader.py"]


def test_main_program_only_composes_components() -> None:
    text = (ROOT / "__main__.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 100
    assert not [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ClassDef)]


def test_import_rules_detect_every_form_of_import(tmp_path: Path) -> None:
    example = tmp_path / "example.py"
    example.write_text(
        "import torch.nn\nfrom infra import config\ndef f():\n    from training.spec import RunSpec\n"
    )
    assert {"torch.nn", "infra.config", "training.spec"} <= imported(example)


INSTALLED: Final = (
    *("ops.__main__", "ops.submission.render", "ops.sweep.submission"),
    *("ops.dev.pod", "ops.data.pod"),
)
"""What the installed command imports: its tree, and what commands import when they run."""
NOT_INSTALLED: Final = ("pulumi", "pulumi_kubernetes", "torch", "numpy", "matplotlib")


def test_the_installed_command_imports_neither_torch_nor_pulumi() -> None:
    program = (
        "import importlib, sys\n"
        f"for name in {NOT_INSTALLED}: sys.modules[name] = None\n"
        f"for name in {INSTALLED}: importlib.import_module(name)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
