"""Part of the security row: whether the images that run were verified by policy-controller.

A scan leaves no trace in a cluster but the signature that the workflow `image` gives after it. Signatures are
checked when a pod is admitted, so the evidence is: pods cannot avoid the check (label, webhook, policy), and those
that run were admitted while it was in force, each image by the digest that was verified.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from infra.domain import naming
from ops import collect, objects
from ops.objects import Json
from ops.ready.production.snapshot import (
    IMAGE_POLICIES,
    NAMESPACES,
    WEBHOOKS,
    RowBuilder,
    StackSnapshot,
    abbreviate,
    containers,
)

WEBHOOK: Final = "policy.sigstore.dev"
"""What policy-controller's chart calls the webhook that verifies images."""

_DIGEST: Final = "@sha256:"
_REMEDY: Final = "set `signatures` in the stack file: docs/security.md"


def check_images(snapshot: StackSnapshot, notes: RowBuilder) -> None:
    """Add to the row what is known of the signatures of the images that run."""
    if not snapshot.teams or NAMESPACES.plural in snapshot.hidden:
        return
    if hidden := snapshot.unreadable(IMAGE_POLICIES, WEBHOOKS, collect.PODS):
        for line in hidden:
            notes.add_unknown(f"image scanning: {line}")
        return
    missing = list(_gaps(snapshot))
    for line in missing:
        notes.add_unknown(f"image scanning: {line}, so nothing proves a scan", _REMEDY)
    if not missing:
        _check_pods(snapshot, notes)


def _gaps(snapshot: StackSnapshot) -> Iterator[str]:
    """Yield why a pod of a team could run an image that was not verified."""
    free = [
        team.namespace for team in snapshot.teams if not _checked(snapshot.namespace(team) or {})
    ]
    if free:
        yield f"pods of {abbreviate(free)} need no signed image"
    if not _policies(snapshot):
        yield "no ClusterImagePolicy requires a signature of every image"
    hooks = [
        hook
        for one in snapshot.cluster(WEBHOOKS)
        if objects.name(one) == WEBHOOK
        for hook in one.get("webhooks") or []
    ]
    # The controller writes the authority and the rules when it starts: without them nothing is sent to it.
    working = [h for h in hooks if h.get("rules") and (h.get("clientConfig") or {}).get("caBundle")]
    if not working:
        yield f"no webhook {WEBHOOK} asks policy-controller"
    elif any(hook.get("failurePolicy") != "Fail" for hook in working):
        yield f"the webhook {WEBHOOK} lets pods in while policy-controller does not answer"


def _checked(home: Json) -> bool:
    return objects.label(home, naming.SIGNED_IMAGES) == "true"


def _policies(snapshot: StackSnapshot) -> list[Json]:
    """Return the platform's policy for all images, if it is enforced."""
    return [
        one
        for one in snapshot.cluster(IMAGE_POLICIES)
        if objects.name(one) == naming.IMAGE_POLICY
        # `enforce` is the default.
        and one["spec"].get("mode", "enforce") == "enforce"
        and one["spec"].get("authorities")
        and {"glob": "**"} in one["spec"].get("images", [])
    ]


def _check_pods(snapshot: StackSnapshot, notes: RowBuilder) -> None:
    """Check that each pod was admitted while the policy was in force, with digests."""
    since = max(str(objects.meta(one).get("creationTimestamp")) for one in _policies(snapshot))
    pods = [
        pod
        for pod in snapshot.all_teams(collect.PODS)
        if objects.status(pod).get("phase") in ("Pending", "Running")
    ]
    older = [
        objects.reference(pod)
        for pod in pods
        if str(objects.meta(pod).get("creationTimestamp")) < since
    ]
    images = {str(container["image"]) for pod in pods for container in containers(pod)}
    tags = sorted(image for image in images if _DIGEST not in image)
    if older:
        notes.add_unknown(
            f"image scanning: {abbreviate(older)} started before signatures were required, so nothing verified it",
            "restart what is older than the ClusterImagePolicy",
        )
    if tags:
        notes.add_unknown(
            f"image scanning: {abbreviate(tags)} runs by tag, which no signature names",
            "name images by digest",
        )
    if not pods:
        notes.add_unknown(
            "image scanning: signatures are required, but no pod of a team runs, so none was verified",
            "start a run, and check again while it trains",
        )
    elif not older and not tags:
        notes.good.append(
            f"image scanning: {len(images)} images in {len(pods)} pods, each admitted by its signature,"
            " which follows its scan"
        )
