"""ReadWriteOnce volumes on EBS, for stateful platform components such as Prometheus."""

from __future__ import annotations

from typing import Final

import pulumi

from infra.domain import naming
from infra.kubernetes.objects import Manifest, manifest
from infra.kubernetes.resources import KubernetesObject
from infra.sites.aws.addons import DRIVER, Addon, AddonRole
from infra.sites.aws.outputs import component

STORAGE_CLASS: Final = naming.BLOCK_STORAGE_CLASS

EBS: Final = Addon(
    name="aws-ebs-csi-driver",
    role=AddonRole(
        service_account="ebs-csi-controller-sa", policy="service-role/AmazonEBSCSIDriverPolicy"
    ),
    settings=DRIVER,
)
"""Creates a volume per claim."""


def storage_class(key_arn: pulumi.Input[str]) -> Manifest:
    """Return the class: gp3, encrypted with the stack's data key, in the zone of the volume's first pod.

    The data key's policy lets EC2 use it on behalf of the account's principals: infra/sites/aws/keys.py.
    """
    return manifest(
        "storage.k8s.io/v1/StorageClass",
        STORAGE_CLASS,
        "storage",
        provisioner="ebs.csi.aws.com",
        parameters={"type": "gp3", "encrypted": "true", "kmsKeyId": key_arn},
        reclaimPolicy="Delete",
        volumeBindingMode="WaitForFirstConsumer",
        allowVolumeExpansion=True,
    )


def block_volumes(
    name: str, key_arn: pulumi.Input[str], opts: pulumi.ResourceOptions
) -> pulumi.Resource:
    """Create the class; its driver is an EKS add-on."""
    made = component("AwsBlockVolumes", name, opts)
    own = pulumi.ResourceOptions(parent=made)
    KubernetesObject(f"{name}-class", storage_class(key_arn), own)
    return made
