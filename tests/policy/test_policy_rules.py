"""What each rule accepts and refuses: one table of resources and the paths of the expected violations."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from infra.domain import naming
from infra.domain.tier import PRODUCTION
from policies.rules import run_documents
from policies.rules.model import UNKNOWN, Resource, StackRule
from tests.policy.policy_resources import (
    DIGEST,
    GPU,
    IMAGE,
    SPOT,
    aws,
    cluster_queue,
    config_map,
    flavor,
    interfaces,
    job,
    karpenter_pool,
    kubernetes,
    local_queue,
    namespace,
    node,
    node_class,
    node_group,
    pod,
    subnet,
    template,
)
from tests.policy.policy_stacks import BY_NAME, check
from tests.unit.snapshots import Text
from training import runs

Case = tuple[Any, ...]
"""One resource or a list of them, then the paths of the violations; a dict is configuration."""

TAGGED = "sandbox.trainyard.dev/trainer:v1"
AT = "spec.template.spec.containers[0].image"


def _in(kind: str, spec: Any) -> Resource:
    return kubernetes(kind, spec)


IMAGES: list[Case] = [
    (job(pod()),),
    (job(pod(UNKNOWN)),),
    (job(pod(TAGGED)), AT),
    (_in("core/v1:Pod", pod(TAGGED)), "spec.containers[0].image"),
    (
        _in("batch/v1:CronJob", {"jobTemplate": {"spec": {"template": {"spec": pod(TAGGED)}}}}),
        f"spec.jobTemplate.{AT}",
    ),
    (
        _in("example.com/v1:Unheard", {"deep": [{"er": pod(TAGGED)}]}),
        "spec.deep[0].er.containers[0].image",
    ),
    (
        kubernetes("core/v1:List", items=[{"spec": pod(TAGGED)}]),
        "items[0].spec.containers[0].image",
    ),
    (
        job(pod(initContainers=[{"image": TAGGED}], ephemeralContainers=[{"image": TAGGED}])),
        "spec.template.spec.initContainers[0].image",
        "spec.template.spec.ephemeralContainers[0].image",
    ),
    (job(pod(f"python@{DIGEST}")), AT),
    (job(pod(f"sandbox.trainyard.dev.evil.example/trainer@{DIGEST}")), AT),
    (job(pod(f"nvcr.io/nvidia-lookalike/pytorch@{DIGEST}")), AT),
    (job(pod(f"sandbox.trainyard.dev/../evil@{DIGEST}")), AT),
    (job(pod(f"{IMAGE}0")), AT),
    (job(pod("")), AT),
    (job(pod(f"docker.io/library/python:3@{DIGEST}")), {"registries": ["docker.io/library/"]}),
    (job(pod(f"registry.example//x@{DIGEST}")), {"registries": ["registry.example"]}, AT),
    (job(pod(f"localhost:5000/trainer@{DIGEST}")), {"registries": ["localhost:5000"]}),
    # A patch or an overlay may leave the image to another object.
    (_in("apps/v1:DeploymentPatch", {"template": {"spec": pod(None)}}),),
    (job(pod(None)), AT),
    (_in("trainer.kubeflow.org/v1alpha1:TrainJob", {"trainer": {"image": IMAGE}}),),
    (
        _in("trainer.kubeflow.org/v1alpha1:TrainJob", {"trainer": {"image": TAGGED}}),
        "spec.trainer.image",
    ),
    (kubernetes("helm.sh/v3:Release", values=pod(TAGGED)),),
    (Resource(type="aws:ecs/taskDefinition:TaskDefinition", props=pod(TAGGED)),),
]

TAINTS: list[Case] = [
    (node("a", [GPU], "8"),),
    (node("a", [], "0"),),
    (node("a", UNKNOWN, "8"),),
    (node("a", [], "8"), "spec.taints"),
    (node("a", [GPU | {"effect": "PreferNoSchedule"}], "8"), "spec.taints"),
    (node("a", [], "8", **{naming.CAPACITY: "spot"}), "spec.taints", "spec.taints"),
    (node("a", None, **{naming.WORKLOAD_TYPE: "gpu-training"}), "spec.taints"),
    (node_group("a", "p4d.24xlarge"),),
    (node_group("a", "m6i.xlarge", labels={}, taints=[]),),
    (node_group("a", "p4d.24xlarge", labels={}, taints=[]), "taints"),
    (node_group("a", "p4d.24xlarge", capacityType="SPOT"), "taints"),
    (karpenter_pool("a", "p4d.24xlarge"),),
    (karpenter_pool("a", "p4d.24xlarge", capacity=("spot",), taints=[GPU, SPOT]),),
    (karpenter_pool("a", "p4d.24xlarge", taints=UNKNOWN),),
    (karpenter_pool("a", "m6i.xlarge", taints=[], labels={}),),
    (karpenter_pool("a", "g6.xlarge", taints=[], labels={}), "spec.template.spec.taints"),
    # Without a requirement, Karpenter prefers spot.
    (karpenter_pool("a", "p4d.24xlarge", capacity=()), "spec.template.spec.taints"),
    (
        node("a", [{"key": "gpu", "value": "", "effect": "NoSchedule"}], "8"),
        {"gpuTaint": "gpu=:NoSchedule"},
    ),
]

TYPES: list[Case] = [
    (node_group("a", "p4d.24xlarge", "p4de.24xlarge", capacityType="SPOT"),),
    (node_group("a", "p4d.24xlarge"),),
    (node_group("a", "m6i.xlarge", labels={}, capacityType="SPOT"),),
    (node_group("a", "p4d.24xlarge", capacityType="SPOT"), "instanceTypes"),
    (node_group("a", "p4d.24xlarge", capacityType="SPOT"), {"atLeast": 1}),
    (
        karpenter_pool("a", "p4d.24xlarge", "p4d.24xlarge", capacity=("spot", "on-demand")),
        "spec.template.spec.requirements",
    ),
]

A, B = "us-east-1a", "us-east-1b"
P4D, P5 = "p4d.24xlarge", "p5.48xlarge"
LUSTRE = "aws:fsx/lustreFileSystem:LustreFileSystem"


def _files(zone: str) -> Resource:
    by = {"subnetIds": frozenset({f"urn:subnet-{zone}"})}
    return Resource(type=LUSTRE, props={"subnetIds": UNKNOWN}, urn="urn:files", references=by)


def _group(*zones: str, efa: int = 4) -> list[Resource]:
    return [subnet(A), subnet(B), node_group("a", P4D, zones=zones), template(efa=efa)]


def _karpenter(zones: tuple[str, ...], of_class: tuple[str, ...], efa: int = 4) -> list[Resource]:
    made = node_class(zones=of_class, networkInterfaces=interfaces(efa))
    return [subnet(A), subnet(B), karpenter_pool("a", P4D, zones=zones), made]


_GROUP_EFA = "networkInterfaces of its launch template"
EFA: list[Case] = [
    ([*_group(A), _files(A)],),
    ([*_group(A, B, efa=0), _files(A)],),
    ([*_group(), _files(A)],),
    (_group(A, efa=3), _GROUP_EFA),
    ([node_group("a", P4D, P5), template(efa=4)], _GROUP_EFA),
    ([node_group("a"), template(efa=31, instanceType=P5)], _GROUP_EFA),
    ([*_group(B), _files(A)], "subnets"),
    (_group(A, B), "subnets"),
    ([*_karpenter((A,), (A, B)), _files(A)],),
    ([*_karpenter((), (A,)), _files(A)],),
    ([*_karpenter((B,), (A,)), _files(A)], "subnets"),
    (_karpenter((), (A, B)), "subnets"),
]


def _sized(most: Any, **props: Any) -> Resource:
    return node_group("a", "p4d.24xlarge", scalingConfig={"maxSize": most}, **props)


def _quota(gpus: Any, kind: str = "ClusterQueue") -> list[Resource]:
    return [flavor("a", GPU), cluster_queue("one", "a", gpus=gpus, kind=kind)]


_SHARED = {naming.POOL: "a", naming.MIG_CONFIG: "a"}
QUOTA: list[Case] = [
    ([_sized(2), *_quota("16")],),
    ([_sized(2), *_quota(UNKNOWN)],),
    ([_sized(UNKNOWN), *_quota(999)],),
    ([_sized(2, labels=_SHARED), *_quota(999)],),
    ([_sized(2), flavor("b"), cluster_queue("one", "b", gpus=999)],),
    ([_sized(2), *_quota("17")], "ResourceFlavor a"),
    ([_sized(2), *_quota(8), cluster_queue("two", "a", gpus=9)], "ResourceFlavor a"),
    ([_sized(2), *_quota(17, "Cohort")], "ResourceFlavor a"),
    ([node("a", [], "8"), node("a", [], "8"), *_quota("1k")], "ResourceFlavor a"),
    ([node("a", []), *_quota(999)],),
    ([karpenter_pool("a", "p4d.24xlarge", limits={"nodes": "2", naming.GPU: "8"}), *_quota(8)],),
    (
        [karpenter_pool("a", "p4d.24xlarge", limits={"nodes": "2", naming.GPU: "8"}), *_quota(9)],
        "ResourceFlavor a",
    ),
]


def _limit(usd: float) -> dict[str, float]:
    return {"limitUsdPerHour": usd}


_THERE = Resource(type="pulumi:providers:aws", props={"region": "eu-west-1"})
_EVERYTHING = "all node pools"
# p4d.24xlarge costs 21.957642 USD per hour in us-east-1, 12.5 on spot.
BUDGET: list[Case] = [
    ([karpenter_pool("a", "p99.huge"), _sized(10_000)],),
    ([_sized(UNKNOWN)], _limit(1)),
    ([_sized(4)], _limit(87.84)),
    ([_sized(4)], _limit(87.83), _EVERYTHING),
    ([_sized(4, capacityType="SPOT")], _limit(50)),
    ([_sized(4, capacityType="SPOT")], _limit(49), _EVERYTHING),
    # One pool in two zones: two groups that bear its name.
    ([_sized(3), _sized(1)], _limit(87.83), _EVERYTHING),
    ([karpenter_pool("a", "m6i.xlarge", limits={"nodes": "1k"})], _limit(191), _EVERYTHING),
    (
        [karpenter_pool("a", P4D, capacity=("spot", "on-demand"), limits={"nodes": "4"})],
        *(_limit(87.83), _EVERYTHING),
    ),
    ([karpenter_pool("a", P4D)], _limit(1e9), "spec.limits.nodes"),
    ([_sized(1, instanceTypes=[P4D, "p99.huge"])], _limit(1e9), "instance types"),
    ([_sized(1, instanceTypes=[])], _limit(1e9), "instance types"),
    ([_sized(4), _THERE], _limit(87.84), _EVERYTHING),
]


def _plugin(how: str = "timeSlicing", replicas: int = 4) -> str:
    """The configuration of NVIDIA's device plugin, as its ConfigMap holds it."""
    entry = f"{{name: nvidia.com/gpu, replicas: {replicas}}}"
    return f"version: v1\nsharing:\n  {how}:\n    resources: [{entry}]\n"


def _pool_of(*teams: str, config: str = "") -> list[Resource]:
    label = {naming.DEVICE_PLUGIN_CONFIG: config} if config else {}
    queues = [cluster_queue(team, "a") for team in teams]
    return [
        karpenter_pool("a", "g6.xlarge", labels=label),
        flavor("a", GPU),
        *queues,
        *map(local_queue, teams),
    ]


def _release(values: Any) -> Resource:
    return kubernetes("helm.sh/v3:Release", values=values)


_SLICED = config_map("plugin", {"sliced": _plugin()})
_WHOLE = _release({"config": {"default": "whole"}})
_CHECKS = [cluster_queue("checks", "a"), local_queue(naming.VALIDATION_NAMESPACE, "checks")]
SHARING: list[Case] = [
    ([*_pool_of("one"), _SLICED],),
    ([*_pool_of("one", "two"), config_map("plugin", {"sliced": _plugin(replicas=1)})],),
    ([*_pool_of("one", "two"), config_map("plugin", {"sliced": "timeSlicing: ["})],),
    ([*_pool_of("one", "two"), config_map("plugin", {"sliced": UNKNOWN})],),
    ([*_pool_of("one", "two"), _SLICED, _WHOLE],),
    ([*_pool_of("one", "two", config="whole"), _SLICED],),
    ([*_pool_of("one"), *_CHECKS, _SLICED],),
    ([*_pool_of("one"), namespace("one", "research"), _SLICED],),
    ([*_pool_of("one", "two"), _SLICED], "data.sliced"),
    ([*_pool_of("one", "two", config="sliced"), _SLICED, _WHOLE], "data.sliced"),
    ([*_pool_of("one"), local_queue("two", "one"), _SLICED], "data.sliced"),
    ([*_pool_of("one"), namespace("one", PRODUCTION.name), _SLICED], "data.sliced"),
    (
        [*_pool_of("one", "two"), config_map("plugin", {"sliced": _plugin("mps")})],
        "data.sliced",
    ),
    (
        [
            *_pool_of("one", "two"),
            _release({"devicePlugin": {"config": {"data": {"x": _plugin()}}}}),
        ],
        "values.devicePlugin.config.data.x",
    ),
]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_EQUAL = {"operator": "Equal"}
BOTH = [_EQUAL | GPU, _EQUAL | SPOT]
QUEUES = [
    local_queue("research"),
    cluster_queue("research", "spot", "ondemand"),
    flavor("spot", GPU, SPOT),
    flavor("ondemand", GPU),
]
"""The queue of the examples' namespace, with both kinds of capacity behind it."""


def _affinity(key: str, operator: str, *values: Any) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}
    return {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [term]}}}


def _run(tier: str = PRODUCTION.name, tolerations: Any = BOTH, **spec: Any) -> Resource:
    volumes = [{"configMap": {"name": "demo-v1"}}]
    labels = {naming.QUEUE_NAME: "research", naming.TIER: tier}
    return job(pod(tolerations=tolerations, **({"volumes": volumes} | spec)), **labels)


def _record(*capacity: str) -> Resource:
    return config_map("demo-v1", {"run.json": json.dumps({"capacity_types": capacity})})


_RUNTIME = kubernetes(
    "trainer.kubeflow.org/v1alpha1:TrainingRuntime",
    {"template": {"spec": pod(tolerations=BOTH)}},
    metadata={"name": "torch"},
)
_TRAIN_JOB = kubernetes(
    "trainer.kubeflow.org/v1alpha1:TrainJob",
    {"runtimeRef": {"name": "torch"}, "trainer": {}},
    metadata={"labels": {naming.TIER: PRODUCTION.name}},
)
_POD = "spec.template.spec"
PRODUCTION_SPOT: list[Case] = [
    ([_run(), _record("on-demand", "spot"), *QUEUES],),
    ([_run("research"), *QUEUES],),
    ([_run(affinity=_affinity(naming.POOL, "In", "ondemand")), *QUEUES],),
    ([_run(affinity=_affinity(naming.POOL, "In", UNKNOWN)), *QUEUES],),
    ([_run(affinity=UNKNOWN), *QUEUES],),
    ([_run(nodeSelector={naming.POOL: "ondemand"}), *QUEUES],),
    ([_run(nodeSelector={naming.POOL: "spot"}), *QUEUES], _POD),
    ([_run(tolerations=[GPU])],),
    ([_run(volumes=[{"configMap": {"name": UNKNOWN}}]), *QUEUES],),
    ([_run(), config_map("demo-v1", {"run.json": UNKNOWN}), *QUEUES],),
    ([_run(), _record("on-demand")], _POD),
    ([_run(tolerations=[{"operator": "Exists"}])], _POD),
    ([_run(tolerations=[GPU]), _record("on-demand"), *QUEUES], _POD),
    ([_run(affinity=_affinity(naming.POOL, "In", "spot", "ondemand")), *QUEUES], _POD),
    ([_run(affinity=_affinity("zone", "NotIn", "a")), *QUEUES], _POD),
    ([_run("research"), namespace("research", PRODUCTION.name)], _POD),
    ([_TRAIN_JOB, _RUNTIME], "torch: spec.template.spec"),
    ([_TRAIN_JOB],),
]

DATA_KEY = aws("kms/Key", enableKeyRotation=True)
_GP3 = {"encrypted": True, "volumeType": "gp3"}
_COMPONENT = "eks:index:Cluster"
_KUBE_CLASS = "storage.k8s.io/v1:StorageClass"


def _disks(**changes: Any) -> dict[str, Any]:
    return {"blockDeviceMappings": [{"virtualName": "ephemeral0"}, {"ebs": _GP3 | changes}]}


ENCRYPTION: list[Case] = [
    (template(**_disks()),),
    (template(**_disks(encrypted="true")),),
    (template(blockDeviceMappings=UNKNOWN),),
    (template(), "blockDeviceMappings"),
    (template(**_disks(encrypted="false")), "blockDeviceMappings[1].ebs.encrypted"),
    (template(**_disks(volumeType="gp2")), "blockDeviceMappings[1].ebs.volumeType"),
    (node_class(**_disks(encrypted=None)), "spec.blockDeviceMappings[1].ebs.encrypted"),
    (aws("eks/Cluster", encryptionConfig={"provider": {"keyArn": UNKNOWN}}),),
    (aws("eks/Cluster", version="1.35"), "encryptionConfig.provider.keyArn"),
    (Resource(type=_COMPONENT, props={}),),
    (Resource(type=_COMPONENT, props={"version": "1.35"}), "encryptionConfigKeyArn"),
    (aws("fsx/LustreFileSystem", kmsKeyId=UNKNOWN, logConfiguration={"level": "DISABLED"}),),
    (aws("fsx/LustreFileSystem"), "kmsKeyId"),
    (
        aws("fsx/LustreFileSystem", kmsKeyId="arn", logConfiguration={"level": "WARN_ERROR"}),
        "logConfiguration.destination",
    ),
    (aws("efs/FileSystem", encrypted=True, kmsKeyId="arn"),),
    (aws("efs/FileSystem"), "encrypted", "kmsKeyId"),
    (DATA_KEY,),
    (aws("kms/Key"), "enableKeyRotation"),
    (aws("sqs/Queue", kmsMasterKeyId=UNKNOWN),),
    (aws("sqs/Queue"), "sqsManagedSseEnabled"),
    (aws("cloudwatch/LogGroup"), "kmsKeyId"),
    (kubernetes(_KUBE_CLASS, provisioner="ebs.csi.aws.com", parameters={"encrypted": "true"}),),
    (kubernetes(_KUBE_CLASS, provisioner="efs.csi.aws.com"),),
    (kubernetes(_KUBE_CLASS, provisioner="ebs.csi.aws.com"), "parameters.encrypted"),
]

_LB = "service.beta.kubernetes.io/aws-load-balancer"
_PRIVATE, _SCHEME = {f"{_LB}-internal": "true"}, f"{_LB}-scheme"
_ALB = "alb.ingress.kubernetes.io/scheme"
_FACING = "internet-facing"
_RULE = "vpc/SecurityGroupIngressRule"
_INGRESS = "networking.k8s.io/v1:Ingress"


def _service(annotations: Any, **spec: Any) -> Resource:
    given = {"type": "LoadBalancer", **spec}
    return kubernetes("core/v1:Service", given, metadata={"annotations": annotations})


def _endpoint(public: Any, *cidrs: str) -> dict[str, Any]:
    return {"endpointPublicAccess": public, "publicAccessCidrs": list(cidrs)}


EXPOSURE: list[Case] = [
    (aws("eks/Cluster", vpcConfig=_endpoint(False)),),
    (aws("eks/Cluster", vpcConfig=_endpoint(True, "198.51.100.0/24")),),
    (aws("eks/Cluster"), "vpcConfig.publicAccessCidrs"),
    (
        aws("eks/Cluster", vpcConfig=_endpoint(True, "198.51.100.0/24", "::/0")),
        "vpcConfig.publicAccessCidrs",
    ),
    (Resource(type=_COMPONENT, props={}),),
    # Two halves are the internet, too.
    (
        Resource(type=_COMPONENT, props=_endpoint(True, "0.0.0.0/1", "128.0.0.0/1")),
        "publicAccessCidrs",
    ),
    (aws(_RULE, cidrIpv4="10.0.0.0/8", cidrIpv6="fc00::/7"),),
    (aws(_RULE, referencedSecurityGroupId=UNKNOWN, cidrIpv4=UNKNOWN),),
    (aws(_RULE, cidrIpv4="0.0.0.0/0"), "cidrIpv4"),
    (aws(_RULE, cidrIpv6="2000::/3"), "cidrIpv6"),
    (aws("ec2/SecurityGroup", egress=[{"cidrBlocks": ["0.0.0.0/0"]}]),),
    (
        aws("ec2/SecurityGroup", ingress=[{}, {"cidrBlocks": ["0.0.0.0/0"]}]),
        "ingress[1].cidrBlocks",
    ),
    (_service(None, type="ClusterIP"),),
    (_service(_PRIVATE),),
    (_service(UNKNOWN),),
    (_service({_SCHEME: "internal", f"{_LB}-type": "external"}),),
    (_service(None), "metadata.annotations"),
    (_service(_PRIVATE | {_SCHEME: _FACING}), "metadata.annotations"),
    # Kubernetes' own controller takes it, and knows no scheme.
    (_service({_SCHEME: "internal"}), "metadata.annotations"),
    (kubernetes(_INGRESS, metadata={"annotations": {_ALB: "internal"}}),),
    (
        kubernetes(_INGRESS, metadata={"annotations": {_ALB: _FACING}}),
        f"metadata.annotations[{_ALB}]",
    ),
    (_release(UNKNOWN),),
    (_release({"grafana": {"service": {"type": "LoadBalancer", "annotations": _PRIVATE}}}),),
    (
        _release({"grafana": {"service": {"type": "LoadBalancer"}}}),
        "values.grafana.service.annotations",
    ),
    (
        _release({"ingress": [{"annotations": {_ALB: _FACING}}]}),
        f"values.ingress[0].annotations[{_ALB}]",
    ),
]


def _metadata(tokens: Any = "required", hops: Any = 1) -> dict[str, Any]:
    return {"metadataOptions": {"httpTokens": tokens, "httpPutResponseHopLimit": hops}}


METADATA: list[Case] = [
    (template(**_metadata()),),
    (template(**_metadata(UNKNOWN, UNKNOWN)),),
    (template(metadataOptions={"httpEndpoint": "disabled"}),),
    (node_class(metadataOptions=UNKNOWN),),
    (template(**_metadata(hops=2)), {"maxHopLimit": 2}),
    (template(**_metadata(hops=2)), "metadataOptions.httpPutResponseHopLimit"),
    (template(), "metadataOptions.httpTokens", "metadataOptions.httpPutResponseHopLimit"),
    (node_class(**_metadata("optional")), "spec.metadataOptions.httpTokens"),
]

_BUCKET = aws("s3/Bucket", "urn:bucket", bucket="logs")
_KMS = {"applyServerSideEncryptionByDefault": {"sseAlgorithm": "aws:kms"}}
_ENCRYPTED = aws("s3/BucketServerSideEncryptionConfiguration", bucket="logs", rules=[_KMS])
_FLAGS = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
_ALL: Any = dict.fromkeys(_FLAGS, True)
_CLOSED = replace(
    aws("s3/BucketPublicAccessBlock", bucket=UNKNOWN, **_ALL),
    references={"bucket": frozenset({"urn:bucket"})},
)
_OPEN = aws("s3/BucketPublicAccessBlock", bucket="logs", **_ALL | {_FLAGS[3]: False})
BUCKETS: list[Case] = [
    ([_BUCKET, _ENCRYPTED, _CLOSED],),
    ([_BUCKET, _ENCRYPTED], "bucket"),
    ([_BUCKET, _CLOSED], "bucket"),
    ([_BUCKET, _ENCRYPTED, _OPEN], "restrictPublicBuckets"),
    (
        [replace(_ENCRYPTED, props={"bucket": "logs", "rules": [{}]})],
        "rules[0].applyServerSideEncryptionByDefault.sseAlgorithm",
    ),
]

_REQUIRED_STATE = {"required": True}
PROTECTION: list[Case] = [
    (_BUCKET,),
    (replace(_BUCKET, protected=True), _REQUIRED_STATE),
    (aws("sqs/Queue"), _REQUIRED_STATE),
    *(
        (one, _REQUIRED_STATE, "the resource option protect")
        for one in (
            *(_BUCKET, DATA_KEY, aws("efs/FileSystem"), aws("fsx/LustreFileSystem")),
            *(kubernetes(f"core/v1:PersistentVolume{kind}") for kind in ("", "Claim")),
        )
    ),
]

_TAGS = dict.fromkeys(BY_NAME["aws-tags"].defaults["tags"], "x")
_FEW = {key: "x" for key in _TAGS if key != "trainyard.dev/cluster"}


def _tagged(instance: Any, volume: Any) -> Resource:
    kinds = {"instance": instance, "volume": volume}
    return template(tagSpecifications=[{"resourceType": k, "tags": t} for k, t in kinds.items()])


def _provider(tags: Any, accounts: Any) -> Resource:
    props = {"defaultTags": tags, "allowedAccountIds": accounts}
    return Resource(type="pulumi:providers:aws", props=props)


TAGS: list[Case] = [
    (_tagged(_TAGS, _TAGS | {"more": "y"}),),
    (_tagged(UNKNOWN, _TAGS),),
    (template(tagSpecifications=[UNKNOWN]),),
    (_tagged(_FEW, None), "tagSpecifications[instance].tags", "tagSpecifications[volume].tags"),
    (node_class(tags=_TAGS),),
    (node_class(tags=_FEW), "spec.tags"),
    (node_class(tags={"owner": "me"}), {"tags": ["owner"]}),
    (_provider(json.dumps({"tags": _TAGS}), '["111122223333"]'),),
    (_provider(UNKNOWN, UNKNOWN),),
    (_provider("{", ["1"]), "defaultTags.tags"),
    (_provider({"tags": _TAGS}, "[]"), "allowedAccountIds"),
    (aws("fsx/LustreFileSystem", tags={"trainyard.dev/team": "research"}),),
    (aws("fsx/LustreFileSystem", tags={"Name": "x"}), "tags"),
]


def _stash(now: Any, launched: Any, key: str = runs.DOCUMENT) -> Resource:
    props = {"input": {key: now}, "output": {key: launched}}
    return Resource(type=run_documents.STASH, props=props, urn="urn:hello-v1")


DOCUMENTS: list[Case] = [
    (_stash("1" * 64, "1" * 64),),
    (_stash("2" * 64, UNKNOWN),),
    (_stash(UNKNOWN, "1" * 64),),
    (_stash("2" * 64, "1" * 64, "another program's"),),
    (Resource(type=run_documents.STASH, props={"input": 3, "output": 4}),),
    (_stash("2" * 64, "1" * 64), "document"),
]

TABLE: dict[str, list[Case]] = {
    "images-by-digest": IMAGES,
    "gpu-pool-taints": TAINTS,
    "spot-instance-types": TYPES,
    "efa-placement": EFA,
    "quota-fits-pools": QUOTA,
    "hourly-budget": BUDGET,
    "time-slicing-one-team": SHARING,
    "spot-for-production": PRODUCTION_SPOT,
    "encryption-at-rest": ENCRYPTION,
    "no-public-endpoints": EXPOSURE,
    "instance-metadata": METADATA,
    "bucket-settings": BUCKETS,
    "protected-state": PROTECTION,
    "aws-tags": TAGS,
    "run-documents": DOCUMENTS,
}


def test_the_table_has_passing_and_failing_resources_of_every_rule() -> None:
    assert TABLE.keys() == BY_NAME.keys()
    for name, cases in TABLE.items():
        assert {any(isinstance(x, str) for x in case) for case in cases} == {True, False}, name


@pytest.mark.parametrize(
    ("name", "case"),
    [
        pytest.param(name, case, id=f"{name}-{number}")
        for name, cases in TABLE.items()
        for number, case in enumerate(cases)
    ],
)
def test_rule(name: str, case: Case, text: Text) -> None:
    given, *more = case
    resources: list[Resource] = given if isinstance(given, list) else [given]
    rule, config = BY_NAME[name], dict(BY_NAME[name].defaults)
    for one in more:
        config |= one if isinstance(one, dict) else {}
    found = check(rule, resources, config)
    if isinstance(rule, StackRule):
        assert {v.urn for v in found if v.path != _EVERYTHING} <= {r.urn for r in resources}
    expected = [path for path in more if isinstance(path, str)]
    assert {violation.path for violation in found} == {*expected}
    if found:
        text([str(violation) for violation in found])


def test_the_rule_on_documents_and_the_program_use_the_same_key() -> None:
    assert run_documents.KEY == runs.DOCUMENT
