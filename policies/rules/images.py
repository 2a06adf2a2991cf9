"""Images are pinned by digest and come from allowed registries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from .model import UNKNOWN, Config, Resource, ResourceRule, Violation, show
from .workloads import pod_templates

_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_PATH: Final = re.compile(r"[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*")
_HOST: Final = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]+)?")

_SANDBOX: Final = "sandbox.trainyard.dev"
"""Images of the sandbox: content digests of the checkout, not pulled from any registry."""
_PIN: Final = "pin the image by the digest of its build, REPOSITORY@sha256:DIGEST"


def repository(reference: str) -> str | None:
    """Return the full repository of an image reference, registry first; None if malformed.

    As container runtimes resolve it: the default registry is Docker Hub, with `library` for bare names.
    """
    name = reference.partition("@")[0]
    folder, slash, last = name.rpartition("/")
    name = folder + slash + last.partition(":")[0]
    host, _, path = name.partition("/")
    if not path or not ("." in host or ":" in host or host == "localhost"):
        host, path = "docker.io", name if "/" in name else f"library/{name}"
    if not _HOST.fullmatch(host) or not _PATH.fullmatch(path):
        return None
    return f"{host}/{path}"


def _allowed(found: str, registries: Sequence[str]) -> bool:
    return any(f"{found}/".startswith(entry.rstrip("/") + "/") for entry in registries)


def _image_violations(path: str, image: Any, registries: Sequence[str]) -> Iterator[Violation]:
    if not isinstance(image, str) or not image:
        got = "no image" if not image else show(image)
        yield Violation(path, got, "REPOSITORY@sha256:DIGEST", _PIN)
        return
    if not _DIGEST.fullmatch(image.partition("@")[2]):
        yield Violation(path, image, "REPOSITORY@sha256:DIGEST", _PIN)
    found = repository(image)
    if found is None or not _allowed(found, registries):
        yield Violation(
            path,
            f"{image} from {found or 'a malformed repository'}",
            f"repositories under {', '.join(registries) or 'nothing'}",
            "mirror the image there, or add its registry to images-by-digest.registries",
        )


def _check(resource: Resource, config: Config) -> Iterable[Violation]:
    for template in pod_templates(resource):
        for container in template.containers:
            if container.image is UNKNOWN or (container.image is None and not template.complete):
                continue
            yield from _image_violations(container.path, container.image, config["registries"])


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
