"""A cloud for tests: Pulumi's mocks that create each AWS resource in moto, in this process.

A service's module registers one function per type token with `@creates`, one per look-up with `@answers`;
what moto lacks is listed in `missing`. To add a service, add a module and import it in `services`.
"""

from tests.aws.moto_cloud.cloud import ACCOUNT, REGION, Cloud, account
from tests.aws.moto_cloud.deploying import Created, Deployed, deploy, deployed_on, deployed_once
from tests.aws.moto_cloud.registry import answers, creates

__all__ = [
    "ACCOUNT",
    "REGION",
    "Cloud",
    "Created",
    "Deployed",
    "account",
    "answers",
    "creates",
    "deploy",
    "deployed_on",
    "deployed_once",
]
