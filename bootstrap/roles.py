"""Trust in GitHub and the roles of its workflows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pulumi
import pulumi_aws.iam as iam

from bootstrap import permissions
from bootstrap.permissions import Home, Target
from infra.domain import naming
from infra.sites.aws.policy_documents import Document

SESSION_S = 2 * 3600
"""Seconds: a first update takes about 45 minutes, an upgrade with drained nodes longer."""


class Roles(pulumi.ComponentResource):
    """One role per stack and purpose, and one for the image.

    `home`: without the key, which is `key_arn`; `github_provider`: whether to create the account's OIDC provider.
    """

    variables: dict[str, pulumi.Output[str]]
    """ARNs by the names of the workflows' variables."""

    def __init__(
        self,
        name: str,
        home: Home,
        key_arn: pulumi.Output[str],
        repository_arns: Sequence[pulumi.Output[str]],
        targets: Sequence[Target],
        opts: pulumi.ResourceOptions,
        *,
        github_provider: bool,
    ) -> None:
        super().__init__(naming.infra_type("AwsRoles"), name, None, opts)
        self._home, self._key_arn = home, key_arn
        self._trusted = [self._github(name)] if github_provider else []
        self.variables = {}
        for target in targets:
            self._of_stack(target)
        image = permissions.role_name("all", "image")
        role = self._role(image, "environment:image", "Publishes the trainer's image")
        pushes = pulumi.Output.all(*repository_arns).apply(permissions.image_publisher)
        self._attach(image, role, "push", pushes)
        self.variables["IMAGE_ROLE"] = role.arn
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
        reads = {"reads-1": permissions.descriptions(target)}

        def preview(home: Home) -> dict[str, Document]:
            state = permissions.state_reader(home, stack)
            return {"state-1": state, "limits-1": permissions.preview_limits()}

        def drift(home: Home) -> dict[str, Document]:
            return {"state-1": permissions.state_reader(home, stack)} | reads

        def deploy(home: Home) -> dict[str, Document]:
            rights = enumerate(permissions.deployment(home, target), 1)
            state = {"state-1": permissions.state_writer(home, stack)}
            return state | reads | {f"stack-{number}": one for number, one in rights}

        for variable, purpose, subject, description, documents in (
            (f"PREVIEW_ROLE_{suffix}", "preview", "pull_request", "Previews", preview),
            (f"DRIFT_ROLE_{suffix}", "drift", "ref:refs/heads/main", "Detects drift of", drift),
            (f"DEPLOY_ROLE ({stack})", "deploy", f"environment:{stack}", "Deploys", deploy),
        ):
            name = permissions.role_name(stack, purpose)
            role = self._role(name, subject, f"{description} {stack}")
            self._read_account(name, role)
            for title in documents(self._home):
                policy = self._key_arn.apply(
                    lambda arn, make=documents, title=title: make(  # type: ignore[misc]
                        replace(self._home, key_arn=arn)
                    )[title]
                )
                self._attach(name, role, title, policy)
            self.variables[variable] = role.arn

    def _role(self, name: str, subject: str, description: str) -> iam.Role:
        """Create a role that workflows with this subject may take.

        Subjects: https://docs.github.com/en/actions/reference/security/oidc
        """
        return iam.Role(
            name,
            name=name,
            description=description,
            assume_role_policy=json.dumps(permissions.trust(self._home, subject)),
            max_session_duration=SESSION_S,
            opts=pulumi.ResourceOptions(parent=self, depends_on=self._trusted),
        )

    def _read_account(self, name: str, role: iam.Role) -> None:
        for arn in permissions.READ_POLICIES:
            iam.RolePolicyAttachment(
                f"{name}-{arn.rpartition('/')[2]}",
                role=role.name,
                policy_arn=arn,
                opts=pulumi.ResourceOptions(parent=self),
            )

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
