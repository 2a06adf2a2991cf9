"""Trust in GitHub and the roles of its workflows."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws.iam as iam

from bootstrap import permissions
from bootstrap.permissions import Home, Target
from infra.domain import naming
from infra.sites.aws.policy_documents import Document

Documents = Callable[[Home], Sequence[Document]]

SESSION_S = 2 * 3600
"""Seconds: a first update takes about 45 minutes, an upgrade with drained nodes longer."""


@dataclass(frozen=True, kw_only=True)
class RolesArgs:
    """Repository, state and stacks."""

    account: str
    region: str
    repository: str
    bucket: str
    key_arn: pulumi.Input[str]
    image_repository_arns: Sequence[pulumi.Input[str]]
    targets: tuple[Target, ...]
    github_provider: bool
    """Whether to create the account's OIDC provider."""


class Roles(pulumi.ComponentResource):
    """One role per stack and purpose, and one for the image."""

    variables: dict[str, pulumi.Output[str]]
    """ARNs by the names of the workflows' variables."""

    def __init__(self, name: str, args: RolesArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("AwsRoles"), name, None, opts)
        self._args = args
        self._trusted = [self._github(name)] if args.github_provider else []
        self.variables = {}
        for target in args.targets:
            self._of_stack(target)
        self.variables["IMAGE_ROLE"] = self._role(
            permissions.role_name("all", "image"),
            permissions.of_environment("image"),
            "Publishes the trainer's image",
            {},
            image=True,
        )
        self.register_outputs({"variables": self.variables})

    def _github(self, name: str) -> pulumi.Resource:
        return iam.OpenIdConnectProvider(
            f"{name}-github",
            url=f"https://{permissions.ISSUER}",
            client_id_lists=[permissions.AUDIENCE],
            opts=pulumi.ResourceOptions(parent=self, protect=True),
        )

    def _of_stack(self, target: Target) -> None:
        stack, suffix = target.stack, target.stack.upper().replace("-", "_")

        def readable(home: Home) -> list[Document]:
            return [permissions.state_reader(home, stack)]

        def writable(home: Home) -> list[Document]:
            return [permissions.state_writer(home, stack)]

        def limited(_: Home) -> list[Document]:
            return [permissions.preview_limits()]

        def described(_: Home) -> list[Document]:
            return [permissions.descriptions(target)]

        self.variables[f"PREVIEW_ROLE_{suffix}"] = self._role(
            permissions.role_name(stack, "preview"),
            permissions.of_pull_requests(),
            f"Previews {stack}",
            {"state": readable, "limits": limited},
        )
        self.variables[f"DRIFT_ROLE_{suffix}"] = self._role(
            permissions.role_name(stack, "drift"),
            permissions.of_branch("main"),
            f"Detects drift of {stack}",
            {"state": readable, "reads": described},
        )
        self.variables[f"DEPLOY_ROLE ({stack})"] = self._role(
            permissions.role_name(stack, "deploy"),
            permissions.of_environment(stack),
            f"Deploys {stack}",
            {
                "state": writable,
                "reads": described,
                "stack": lambda home: permissions.deployment(home, target),
            },
        )

    def _role(
        self,
        name: str,
        subject: str,
        description: str,
        documents: dict[str, Documents],
        *,
        image: bool = False,
    ) -> pulumi.Output[str]:
        role = iam.Role(
            name,
            name=name,
            description=description,
            assume_role_policy=json.dumps(permissions.trust(self._home(""), subject)),
            max_session_duration=SESSION_S,
            opts=pulumi.ResourceOptions(parent=self, depends_on=self._trusted),
        )
        for arn in () if image else permissions.READ_POLICIES:
            iam.RolePolicyAttachment(
                f"{name}-{arn.rpartition('/')[2]}",
                role=role.name,
                policy_arn=arn,
                opts=pulumi.ResourceOptions(parent=self),
            )
        if image:
            found = pulumi.Output.all(*self._args.image_repository_arns)
            self._attach(name, role, "push", found.apply(permissions.image_publisher))
        for title, of_home in documents.items():
            for number, _ in enumerate(of_home(self._home(""))):
                policy = pulumi.Output.from_input(self._args.key_arn).apply(
                    lambda arn, make=of_home, at=number: make(self._home(arn))[at]  # type: ignore[misc]
                )
                self._attach(name, role, f"{title}-{number + 1}", policy)
        return role.arn

    def _attach(
        self, name: str, role: iam.Role, title: str, policy: pulumi.Output[Document]
    ) -> None:
        """Attach a managed policy: all inline policies of a role share 10,240 characters."""
        made = iam.Policy(
            f"{name}-{title}",
            name=f"{name}-{title}",
            policy=policy.apply(json.dumps),
            opts=pulumi.ResourceOptions(parent=self),
        )
        iam.RolePolicyAttachment(
            f"{name}-{title}",
            role=role.name,
            policy_arn=made.arn,
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _home(self, key_arn: str) -> Home:
        return Home(
            account=self._args.account,
            region=self._args.region,
            repository=self._args.repository,
            bucket=self._args.bucket,
            key_arn=key_arn,
        )
