"""CRDs that the stack installs itself, with the schemas of upstream's Go modules.

`python -m infra.cli.crds` writes them. Pod templates are left open: the API server checks the pods that
controllers make of them, and their schema alone has thousands of lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from infra.kubernetes.objects import Manifest, metadata


def file(name: str) -> Path:
    """Return the file with a CRD's spec; `name`: as in Kubernetes, such as mpijobs.kubeflow.org."""
    return Path(__file__).with_name(f"{name}.yaml")


@cache
def spec(name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = yaml.safe_load(file(name).read_text(encoding="utf-8"))
    return found


def crd(
    name: str, labels: Mapping[str, str], annotations: Mapping[str, str] | None = None
) -> Manifest:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata(name, labels=labels, annotations=annotations),
        "spec": spec(name),
    }
