"""Images are pinned by digest and come from allowed registries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from .model import UNKNOWN, Config, Resource, ResourceRule, Violation, show
from .workloads import pod_templates

_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_PART: Final = r"[a-z0-9]+([._-]+[a-z0-9]+)*"
_REPOSITORY: Final = re.compile(rf"{_PART}(:[0-9]+)?(/{_PART})*")
_TAG: Final = re.compile(r":[\w.-]+$")
_SANDBOX: Final = "sandbox.trainyard.dev"
"""Images of the sandbox: content digests of the checkout, not pulled from any registry."""
_PIN: Final = "pin the image by the digest of its build, REPOSITORY@sha256:DIGEST"


def _is_allowed(image: str, registries: Sequence[str]) -> bool:
    repository = _TAG.sub("", image.partition("@")[0])
    return bool(_REPOSITORY.fullmatch(repository)) and any(
        f"{repository}/".startswith(entry.rstrip("/") + "/") for entry in registries
    )


def _check_image(path: str, image: Any, registries: Sequence[str]) -> Iterator[Violation]:
    if not isinstance(image, str) or not image:
        got = "no image" if not image else show(image)
        yield Violation(path, got, "REPOSITORY@sha256:DIGEST", _PIN)
        return
    if not _DIGEST.fullmatch(image.partition("@")[2]):
        yield Violation(path, image, "REPOSITORY@sha256:DIGEST", _PIN)
    if not _is_allowed(image, registries):
        yield Violation(
            path,
            image,
            f"repositories under {', '.join(registries) or 'nothing'}",
            "mirror the image there, or add its registry to images-by-digest.registries",
        )


def _check(resource: Resource, config: Config) -> Iterable[Violation]:
    for template in pod_templates(resource):
        for container in template.containers:
            if container.image is UNKNOWN or (container.image is None and not template.complete):
                continue
            yield from _check_image(container.path, container.image, config["registries"])


IMAGES_BY_DIGEST: Final = ResourceRule(
    name="images-by-digest",
    description="Images of containers are pinned, and come from allowed registries.",
    check=_check,
    schema={
        "registries": {
            "type": "array",
            "items": {"type": "string", "minLength": 1},
            "default": [_SANDBOX, "registry.k8s.io", "nvcr.io/nvidia"],
            "description": "Allowed registries, or repository prefixes in them",
        }
    },
)
