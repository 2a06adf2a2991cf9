"""Compose what one AWS account needs before its first stack."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pulumi
import pulumi_aws.provider as aws
import pulumi_aws.servicequotas as servicequotas

from bootstrap.images import Images
from bootstrap.permissions import KEY_ALIAS, Home, Target
from bootstrap.roles import Roles
from bootstrap.settings import Settings, parse
from bootstrap.state import State
from infra.config import ConfigError
from infra.domain import naming


def deploy(settings: Settings) -> None:
    """Create everything, and export what the next steps need."""
    provider = aws.Provider(
        "aws",
        region=settings.region,
        allowed_account_ids=[settings.account],
        default_tags=aws.ProviderDefaultTagsArgs(
            tags={naming.PART_OF: naming.PROJECT, naming.MANAGED_BY: "pulumi"}
        ),
    )
    opts = pulumi.ResourceOptions(providers=[provider])
    state = State("state", settings.account, settings.state_bucket, opts)
    trainer = Images("images", settings.image_repository, opts)
    ops = Images("ops-images", settings.ops_image_repository, opts)
    roles = Roles(
        "roles",
        Home(
            account=settings.account,
            region=settings.region,
            repository=settings.repository,
            bucket=settings.state_bucket,
        ),
        state.key_arn,
        (trainer.arn, ops.arn),
        [
            Target(
                stack=one.name,
                cluster=one.cluster,
                bucket_prefix=one.bucket_prefix,
                region=one.region or settings.region,
            )
            for one in settings.stacks
        ],
        opts,
        github_provider=settings.github_provider,
    )
    for code, value in settings.quotas.items():
        servicequotas.ServiceQuota(
            f"quota-{code}",
            service_code="ec2",
            quota_code=code,
            value=value,
            opts=pulumi.ResourceOptions(provider=provider, retain_on_delete=True),
        )
    backend = f"s3://{settings.state_bucket}?region={settings.region}&awssdk=v2"
    pulumi.export("backendUrl", backend)
    pulumi.export("secretsProvider", f"awskms://{KEY_ALIAS}?region={settings.region}")
    pulumi.export(
        "githubVariables",
        {
            "AWS_REGION": settings.region,
            "PULUMI_BACKEND_URL": backend,
            "IMAGE_REPOSITORY": trainer.url,
            "OPS_IMAGE_REPOSITORY": ops.url,
            **roles.variables,
        },
    )


def main() -> None:
    """Check the settings, then deploy; every mistake is one line of the engine's error."""
    values = pulumi.Config("trainyard-bootstrap").require_object("settings")
    try:
        settings = parse(values, placeholders=pulumi.runtime.is_dry_run())
    except ConfigError as error:
        raise pulumi.RunError(str(error)) from None
    deploy(settings)


main()
