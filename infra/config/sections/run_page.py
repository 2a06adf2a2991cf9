"""The run page in the cluster, behind a proxy that signs users in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field

from infra.addons.run_page import RunPageArgs
from infra.config.errors import ConfigIssue, shown
from infra.config.partial import Check, PartialStack
from infra.config.sections.grafana import Https
from infra.config.sections.ingress import IngressConfig
from infra.config.types import SOURCE_SUFFIX, DnsLabel, Image, Str, StrictModel, matching

_CLAIM: Final = matching("claim", r"[\w:./-]{1,200}", "the name of a claim, such as email")
_TEXT: Final = matching("text", r"[\x21-\x7e]{1,300}", "printable characters without spaces")
_PREFIX: Final = matching("prefix", r"(?!system:)[\x21-\x7e]{0,100}", "a prefix such as oidc:")


class RunPageConfig(StrictModel):
    """The run page in the cluster, behind oauth2-proxy."""

    image: Image = Field(description="the image of ops/image/Dockerfile by digest")
    """Image of the commands (ops/image/Dockerfile), by digest."""
    proxy_image: Image = Field(description="quay.io/oauth2-proxy/oauth2-proxy by digest, or a copy")
    """Image of oauth2-proxy, by digest."""
    url: Https = Field(description="the URL under which people open the page")
    """URL under which people open the page."""
    issuer: Https = Field(description="the URL of an OIDC issuer")
    """OIDC issuer that signs users in."""
    client_id: Annotated[Str, AfterValidator(_TEXT)] = Field(description="the OIDC client's id")
    """OIDC client of the page; it redirects to URL/oauth2/callback."""
    secret_name: DnsLabel = Field(
        description="the name of a Secret of the namespace trainyard-page"
    )
    """A Secret of the namespace `trainyard-page` with the keys client-secret and cookie-secret, which the stack
    does not create."""
    username_claim: Annotated[Str, AfterValidator(_CLAIM)] = "email"
    """Claim that is the user's name in RBAC."""
    groups_claim: Annotated[Str, AfterValidator(_CLAIM)] = "groups"
    """Claim with the user's groups in RBAC."""
    username_prefix: Annotated[Str, AfterValidator(_PREFIX)] = ""
    """What the API server puts before names of users. Default: nothing."""
    groups_prefix: Annotated[Str, AfterValidator(_PREFIX)] = ""
    """What the API server puts before names of groups. Default: nothing."""
    ingress: IngressConfig | None = None
    """How people reach the Service `run-page`. Default: an Ingress of your own."""

    def args(self, teams: tuple[str, ...], *, prometheus: bool) -> RunPageArgs:
        """Return the arguments of the add-on."""
        return RunPageArgs(
            image=self.image,
            proxy_image=self.proxy_image,
            url=self.url,
            issuer=self.issuer,
            client_id=self.client_id,
            secret=self.secret_name,
            username_claim=self.username_claim,
            groups_claim=self.groups_claim,
            user_prefix=self.username_prefix,
            group_prefix=self.groups_prefix,
            teams=teams,
            prometheus=prometheus,
            ingress=self.ingress.args() if self.ingress else None,
        )


def images_by_digest(stack: PartialStack, section: str, *keys: str) -> Iterator[ConfigIssue]:
    """Require digests: these images are not built from this checkout."""
    found: Any = stack.raw.get(section)
    for key in keys:
        image = found.get(key) if isinstance(found, dict) else None
        if isinstance(image, str) and image.endswith(SOURCE_SUFFIX):
            yield ConfigIssue(
                path=f"{section}.{key}",
                code="image-without-digest",
                problem=f"{shown(image)} is built from this checkout",
                valid="must be REPOSITORY@sha256:DIGEST",
                action="push the image and pin the digest that the registry shows",
            )


def check_page_images(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require images by digest."""
    yield from images_by_digest(stack, "runPage", "image", "proxyImage")


CHECKS: Final[tuple[Check, ...]] = (check_page_images,)
