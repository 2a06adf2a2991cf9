"""Tools come from PATH when they suit, else from the cache."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from sandbox.toolchain import lookup, tools
from sandbox.toolchain.builder import Builder
from sandbox.toolchain.ensure import ToolchainError, ensure, ensure_for_runs
from sandbox.toolchain.tools import ON_DEMAND_TOOLS, TOOLS, Binary, Tool

ALL_TOOLS = (*TOOLS, *ON_DEMAND_TOOLS)
BY_NAME = {tool.name: tool for tool in ALL_TOOLS}


def _fake(folder: Path, name: str, prints: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\necho '{prints}'\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("name", "printed", "accepted"),
    [
        ("kubernetes", "Kubernetes v1.36.3", True),
        ("kubernetes", "Client Version: v1.36.9", True),
        ("kubernetes", "Client Version: v1.34.4", False),
        ("pulumi", "v3.259.0", True),
        ("pulumi", "v3.312.1", True),
        ("pulumi", "v3.258.9", False),
        ("etcd", "etcd Version: 3.6.8", True),
        ("etcd", "etcd Version: 3.5.9", False),
        ("kueue", "anything", False),
        ("prometheus", "prometheus, version 3.13.5 (branch: , revision: unknown)", True),
        ("prometheus", "promtool, version 2.53.3+ds1 (branch: debian/sid)", True),
        ("prometheus", "prometheus, version 2.42.0+ds (branch: debian/sid)", False),
        ("kube-state-metrics", "kube-state-metrics, version v2.18.0 (branch: )", True),
        ("kube-state-metrics", "kube-state-metrics, version 2.9.0 (branch: )", False),
    ],
)
def test_only_suitable_versions_on_path_are_used(name: str, printed: str, accepted: bool) -> None:
    assert BY_NAME[name].accepts_version(printed) is accepted


def test_a_tool_on_path_is_used_when_all_its_binaries_suit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    names = [binary.name for binary in BY_NAME["kubernetes"].binaries]
    for name in names:
        _fake(tmp_path, name, "Kubernetes v1.36.7")
    assert lookup.find_on_path(BY_NAME["kubernetes"]) == {name: tmp_path / name for name in names}
    _fake(tmp_path, "kubectl", "Client Version: v1.32.0")
    assert lookup.find_on_path(BY_NAME["kubernetes"]) == {}


def test_incomplete_cache_entry_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINYARD_CACHE", str(tmp_path))
    tool = BY_NAME["kubernetes"]
    _fake(lookup.cache_entry(tool) / "bin", "kubectl", "")
    assert lookup.find_in_cache(tool) is None
    for binary in tool.binaries:
        _fake(lookup.cache_entry(tool) / "bin", binary.name, "")
    assert lookup.find_in_cache(tool) is not None


@pytest.mark.parametrize("tool", ALL_TOOLS, ids=lambda tool: tool.name)
def test_every_tool_is_pinned_to_the_version_that_the_table_states(tool: Tool) -> None:
    pinned = (tool.recipe / "go.mod").read_text()
    # Upstream tags the plugin's releases outside of its Go module.
    untagged = {"pulumi-kubernetes": "4.0.0-20260115033456-f47bc2d6f199"}
    version = untagged.get(tool.name, tool.version)
    # The recipe's own program has the version of the module that it is around.
    around = {"pulumi-language-go": "github.com/pulumi/pulumi/pkg/v3"}
    module = around.get(tool.name, tool.module)
    assert f"{module} v{version}" in pinned
    assert f"{module} v{version} h1:" in (tool.recipe / "go.sum").read_text()


def test_a_new_version_of_a_tool_that_none_imports_rebuilds_only_that_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    importer, leaf = BY_NAME["kueue"], BY_NAME["kwok"]
    pins = {name: (importer.recipe / name).read_text() for name in ("go.mod", "go.sum")}
    monkeypatch.setattr(tools, "HERE", tmp_path)
    (tmp_path / importer.graph).mkdir()

    def keys(changed: str) -> tuple[str, str]:
        for name, text in pins.items():
            assert f"{changed} v" in text
            new = text.replace(f"{changed} v", f"{changed} v9")
            (tmp_path / importer.graph / name).write_text(new)
        return importer.key, leaf.key

    first, with_new_leaf = keys("sigs.k8s.io/jobset"), keys("sigs.k8s.io/kwok")
    assert first[1] != with_new_leaf[1]
    for name, text in pins.items():
        (tmp_path / importer.graph / name).write_text(text)
    assert importer.key == with_new_leaf[0] != first[0]


def test_an_unknown_tool_is_rejected_before_anything_is_built() -> None:
    with pytest.raises(ToolchainError, match="tool kueu: not in the table"):
        ensure(Console(quiet=True), "etcd", "kueu")


def test_a_run_does_not_wait_for_the_tools_of_monitoring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINYARD_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")

    def put(tool: Tool) -> None:
        for binary in tool.binaries:
            _fake(lookup.cache_entry(tool) / "bin", binary.name, "")
        for folder in tool.assets:
            (lookup.cache_entry(tool) / "assets" / folder).mkdir(parents=True)

    for tool in TOOLS:
        if tool.name not in tools.MONITORING_TOOLS:
            put(tool)
    made = ensure_for_runs(Console(quiet=True))
    assert not made.can_monitor and {"kube-apiserver", "kueue-manager"} <= set(made.binaries)
    for name in tools.MONITORING_TOOLS:
        put(BY_NAME[name])
    made = ensure_for_runs(Console(quiet=True))
    assert made.can_monitor and set(made.sources) == {tool.name for tool in TOOLS}


GO = """#!/bin/sh
# Stands in for Go: lists one package, and copies what it would compile.
case "$1 $2" in
  "list -f") echo {module} ;;
  "list -export") echo "$@" >> {calls} ;;
  list*) echo example.com/tool ;;
  build*)
    for word; do case "$word" in -modfile=*) pins=${{word#-modfile=}} ;; esac; done
    while [ "$1" != -o ]; do shift; done
    copy=$(sed -n 's/^replace .* => //p' "$pins")
    cat "$copy"/*.go > "$2"; chmod +x "$2" ;;
esac
"""


def test_a_recipe_s_own_files_replace_those_of_its_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, recipe = tmp_path / "module", tmp_path / "recipes" / "tool"
    module.mkdir()
    (module / "all.go").write_text("with every cloud\n")
    (module / "main.go").write_text("the program\n")
    own = recipe / "own" / "example.com" / "tool"
    own.mkdir(parents=True)
    (own / "all.go").write_text("without\n")
    (recipe / "go.mod").write_text("go 1.26.0\n\nrequire example.com/tool v1.0.0\n")
    (recipe / "go.sum").write_text("")
    go = tmp_path / "go" / "bin" / "go"
    _fake(go.parent, "go", "")
    go.write_text(GO.format(module=module, calls=tmp_path / "calls"))
    monkeypatch.setattr(tools, "HERE", tmp_path / "recipes")
    monkeypatch.setenv("TRAINYARD_CACHE", str(tmp_path / "cache"))
    tool = Tool("tool", "1.0.0", "example.com/tool", (Binary("tool", "example.com/tool"),), "")
    before = tool.key
    found = Builder({tool.go: go}, tmp_path / "logs").build(tool, lambda _: None)
    assert found.binaries["tool"].read_text() == "without\nthe program\n"
    (own / "all.go").write_text("other\n")
    assert tool.key != before
    before = tool.key
    (own / "all.go").rename(own / tools.WHOLE_PACKAGE)
    found = Builder({tool.go: go}, tmp_path / "logs").build(tool, lambda _: None)
    assert found.binaries["tool"].read_text() == "other\n"
    assert tool.key != before
