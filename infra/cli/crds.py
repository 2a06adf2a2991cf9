"""`python -m infra.cli.crds`: refresh the schemas of CRDs that the stack installs itself; needs `go` on PATH.

Exit code 0; 1 with one line if a Go module is not available.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from typing import Any, Final

import yaml

from infra.addons.mpi_operator import MPI_OPERATOR
from infra.addons.training_operator import TRAINING_OPERATOR
from infra.kubernetes import crds

_AUTOSCALER: Final = "v0.0.0-20240830133931-adfbe7e45277"
"""Version of the API that Kueue is built with."""

SOURCES: Final[Mapping[str, tuple[str, str]]] = {
    "mpijobs.kubeflow.org": (
        f"github.com/kubeflow/mpi-operator@v{MPI_OPERATOR.version}",
        "manifests/base/kubeflow.org_mpijobs.yaml",
    ),
    "pytorchjobs.kubeflow.org": (
        f"github.com/kubeflow/training-operator@v{TRAINING_OPERATOR.version}",
        "manifests/base/crds/kubeflow.org_pytorchjobs.yaml",
    ),
    "provisioningrequests.autoscaling.x-k8s.io": (
        f"k8s.io/autoscaler/cluster-autoscaler/apis@{_AUTOSCALER}",
        "config/crd/autoscaling.x-k8s.io_provisioningrequests.yaml",
    ),
}
"""Module and file by name of the CRD."""


def spec(text: bytes) -> dict[str, Any]:
    """Return the spec of the CRD in a file of upstream, without descriptions and schemas of pod templates."""
    (found,) = [one for one in yaml.safe_load_all(text) if one]
    short: dict[str, Any] = _short(found["spec"])
    return short


def _short(node: Any) -> Any:
    if isinstance(node, list):
        return [_short(one) for one in node]
    if not isinstance(node, dict):
        return node
    if "containers" in node.get("properties", {}).get("spec", {}).get("properties", {}):
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    # A property may have this name, too; its schema is no text.
    return {
        key: _short(value)
        for key, value in node.items()
        if key != "description" or not isinstance(value, str)
    }


def _read(module: str, path: str) -> bytes:
    """Return a file of a module such as sigs.k8s.io/kueue@v0.19.2. Raises LookupError if it is not available."""
    go = shutil.which("go")
    if go is None:
        raise LookupError(f"{module}: `go` is not on PATH; install Go, or add its folder to PATH")
    with tempfile.TemporaryDirectory() as folder:
        command = [go, "mod", "download", "-json", module]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    answer = json.loads(done.stdout or "{}")
    # The archive suffices, and exists even if the module requires a newer Go.
    if "Zip" not in answer:
        raise LookupError(f"{module}: {' '.join((answer.get('Error') or done.stderr).split())}")
    with zipfile.ZipFile(answer["Zip"]) as archive:
        return archive.read(f"{module}/{path}")


def main() -> int:
    for name, (module, path) in SOURCES.items():
        try:
            text = _read(module, path)
        except LookupError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        about = f"# {path} of {module}; written by python -m infra.cli.crds\n"
        crds.file(name).write_text(about + yaml.safe_dump(spec(text)), encoding="utf-8")
        print(f"{name}: {module}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
