"""Images by digest from allowed registries, their signatures, and addresses that training pods reach."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Final

from infra.config.model import StackConfig
from infra.sections.errors import ConfigIssue, did_you_mean, issue, one_of, shown
from infra.sections.types import SOURCE_SUFFIX, repository_of

_METADATA: Final = tuple(map(ipaddress.ip_network, ("169.254.0.0/16", "fd00:ec2::/32")))
_DIGEST: Final = re.compile(r"@sha256:[0-9a-f]{64}$")


def check_registries(stack: StackConfig) -> Iterator[ConfigIssue]:
    for name, image in stack.images.items():
        yield from _check_registry(stack, f"images.{name}", image)


def _check_registry(stack: StackConfig, path: str, image: str) -> Iterator[ConfigIssue]:
    allowed, repository = stack.registries, repository_of(image)
    if allowed is None or any(
        repository == one or repository.startswith(f"{one}/") for one in allowed
    ):
        return
    yield issue(
        "registry-not-allowed",
        path,
        f"{shown(repository)} is not in an allowed registry",
        f"{f'must be in {one_of(allowed)}' if allowed else 'registries allows no image'}",
        "add its registry to registries, or push it to one of them",
    )


def check_image(stack: StackConfig, path: str, image: str, otherwise: str) -> Iterator[ConfigIssue]:
    """Require an image of the stack by name, or by digest in an allowed registry."""
    if image in stack.images:
        return
    if _DIGEST.search(image):
        yield from _check_registry(stack, path, image)
    else:
        yield issue(
            "unknown-name",
            path,
            f"unknown image {shown(image)}",
            f"must be a name in images ({one_of(stack.images)}) or REPOSITORY@sha256:DIGEST",
            did_you_mean(image, stack.images, otherwise),
        )


def check_source_images(stack: StackConfig) -> Iterator[ConfigIssue]:
    """Reject images of this checkout on real nodes, and for programs that the trainer's image lacks."""
    real = not all(pool.nodes.simulated for pool in stack.node_pools)
    for name, image in stack.images.items() if real else ():
        if image.endswith(SOURCE_SUFFIX):
            yield issue(
                "source-image",
                f"images.{name}",
                f"{shown(image)} is built from this checkout, which only simulated nodes can run",
                "must be REPOSITORY@sha256:DIGEST on real nodes",
                "push the image and pin the digest that the registry shows",
            )
    controllers = {
        "runPage.image": stack.run_page and stack.run_page.image,
        "runPage.proxyImage": stack.run_page and stack.run_page.proxy_image,
        "costs.image": stack.costs and stack.costs.image,
        "steering.image": stack.steering and stack.steering.image,
        "elasticRuns.image": stack.elastic_runs and stack.elastic_runs.image if real else None,
    }
    for path, reference in controllers.items():
        if reference and reference.endswith(SOURCE_SUFFIX):
            yield issue(
                "image-without-digest",
                path,
                f"{shown(reference)} is built from this checkout",
                "must be REPOSITORY@sha256:DIGEST",
                "push the image and pin the digest that the registry shows",
            )


def check_signer(stack: StackConfig) -> Iterator[ConfigIssue]:
    """Require one signer; a KMS key requires a role that only EKS gives to pods."""
    if stack.signatures is None:
        return
    given = {"keyless": stack.signatures.keyless, "kmsKey": stack.signatures.kms_key}
    named = [key for key, value in given.items() if value is not None]
    if len(named) != 1:
        yield issue(
            "single-signer",
            "signatures",
            f"{' and '.join(named) + ' are' if named else 'no signer is'} set",
            "exactly one of keyless and kmsKey is required",
            f"{'remove one of them' if named else 'add one, or remove signatures'}",
        )
    elif named == ["kmsKey"] and not stack.eks:
        yield issue(
            "aws-only",
            "signatures.kmsKey",
            "a KMS key requires a cluster on AWS",
            "must be keyless where cluster.provider is existing",
            "set keyless",
        )


def check_egress(stack: StackConfig) -> Iterator[ConfigIssue]:
    """Reject egress to the metadata service, which returns the node's credentials."""
    for index, text in enumerate(stack.egress_cidrs):
        block = ipaddress.ip_network(text)
        for held in _METADATA:
            if held.version == block.version and held.supernet_of(block):  # type: ignore[arg-type]
                yield issue(
                    "egress-to-metadata",
                    f"egressCidrs[{index}]",
                    f"{shown(text)} is in {held}, the range of the metadata service",
                    "must not expose the node's credentials",
                    "remove it; pods get their own role by EKS Pod Identity",
                )
