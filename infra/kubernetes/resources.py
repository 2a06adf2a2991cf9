"""Kubernetes objects as Pulumi resources, straight from manifests.

Manifests are built by pure functions, so that tests, golden files, `kubectl` and `trainyard run submit` can read
them. pulumi_kubernetes' typed classes would convert each of them back, and its Node has no `status`, which
simulated nodes require.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi

from infra.kubernetes.objects import type_token


class KubernetesObject(pulumi.CustomResource):
    def __init__(
        self, name: str, manifest: Mapping[str, Any], opts: pulumi.ResourceOptions
    ) -> None:
        super().__init__(type_token(manifest), name, dict(manifest), opts)
