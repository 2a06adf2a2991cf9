"""`python -m infra.render STACK`: print every resource that the program registers for a stack.

The program runs as in a preview, with Pulumi's mocks, without engine, cloud or cluster. Prints one JSON line per
resource, deterministic for a checkout, as input of golden files, policies and reviewers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pulumi
from google.protobuf.struct_pb2 import Struct
from pulumi.runtime import mocks, rpc, settings
from pulumi.runtime.proto import resource_pb2
from pulumi.runtime.stack import run_pulumi_func

from infra.config import ConfigError
from infra.config.loader import stack_values
from infra.domain import naming

EKS_COMPONENT: Final = "eks:index:Cluster"
EKS_CLUSTER: Final = "aws:eks/cluster:Cluster"
_AWS: Final = "aws:"

_OF_ALL: Final = ("arn", "name")
_MORE: Final[Mapping[str, tuple[str, ...]]] = {
    "aws:kms/key:Key": ("keyId",),
    "aws:ec2/launchTemplate:LaunchTemplate": ("latestVersion",),
    "aws:ec2/eip:Eip": ("allocationId",),
    "aws:eks/nodeGroup:NodeGroup": ("nodeGroupName",),
    "aws:fsx/lustreFileSystem:LustreFileSystem": ("dnsName", "mountName"),
    "aws:sqs/queue:Queue": ("url",),
}


def added(type_: str, name: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a resource's outputs in addition to its inputs; none for types other than AWS's."""
    if type_ == EKS_COMPONENT:
        return {"kubeconfigJson": placeholder(name, "kubeconfig")}
    if not type_.startswith(_AWS):
        return {}
    wanted = (*_OF_ALL, *_MORE.get(type_, ()))
    found: dict[str, Any] = {key: placeholder(name, key) for key in wanted if key not in inputs}
    if type_ == "aws:eks/nodeGroup:NodeGroup":
        group = {"name": placeholder(name, "autoscalingGroup")}
        found["resources"] = [{"autoscalingGroups": [group]}]
    return found


def eks_cluster(name: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": inputs["name"],
        "arn": placeholder(name, "arn"),
        "createdAt": placeholder(name, "createdAt"),
        "endpoint": placeholder(name, "endpoint"),
        "certificateAuthority": {"data": placeholder(name, "certificateAuthority")},
        "vpcConfig": {"clusterSecurityGroupId": placeholder(name, "securityGroup")},
    }


def looked_up(token: str) -> dict[str, Any]:
    """Return the result of a look-up. Raises LookupError for an unknown one."""
    if token == "aws:index/getCallerIdentity:getCallerIdentity":
        return {"arn": placeholder("caller", "arn")}
    raise LookupError(f"the program calls {token}, which needs a cloud")


def placeholder(name: str, output: str) -> str:
    return f"${{{name}.{output}}}"


ROOT: Final = Path(__file__).resolve().parents[2]

Record = dict[str, Any]

_STACK: Final = "pulumi:pulumi:Stack"


class _NoCloud(mocks.Mocks):
    """Pulumi's mocks: results of calls that need no cloud. The recorder handles resources."""

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        raise RuntimeError(f"the program reads {args.typ} {args.name}, which needs a cloud")

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        return looked_up(args.token), []


class _Recorder(mocks.MockMonitor):
    """Record each registered resource, and return its inputs as its outputs.

    Outputs that a cloud would add are placeholders.
    """

    def __init__(self) -> None:
        super().__init__(_NoCloud())
        self.records: dict[str, Record] = {}

    def RegisterResource(self, request: Any) -> Any:
        urn = self.make_urn(request.parent, request.type, request.name)
        if request.type != _STACK:
            self.records[urn] = self._record(request)
        return resource_pb2.RegisterResourceResponse(
            urn=urn, id=request.name if request.custom else "", object=self._outputs(request)
        )

    def _outputs(self, request: Any) -> Struct:
        inputs = rpc.deserialize_properties(request.object)
        outputs = Struct()
        outputs.CopyFrom(request.object)
        outputs.update(added(request.type, request.name, inputs))
        if request.type == EKS_COMPONENT:
            outputs.update({"eksCluster": self._reference(request.name, inputs)})
        return outputs

    def _reference(self, name: str, inputs: Mapping[str, Any]) -> Record:
        """Return the cluster inside of the remote component, whose state Pulumi looks up."""
        urn = self.make_urn("", EKS_CLUSTER, name)
        state = eks_cluster(name, inputs)
        self.resources[urn] = mocks.MockMonitor.ResourceRegistration(urn, name, state)
        return {rpc._special_sig_key: rpc._special_resource_sig, "urn": urn, "id": name}

    def _record(self, request: Any) -> Record:
        record: Record = {
            "type": request.type,
            "name": request.name,
            "parent": _reference(request.parent),
            "inputs": rpc.deserialize_properties(request.object),
            "dependsOn": sorted(_reference(urn) for urn in request.dependencies),
            "protect": request.protect,
            "provider": _provider(request),
        }
        if request.retainOnDelete:
            record["retainOnDelete"] = True
        if request.ignoreChanges:
            record["ignoreChanges"] = sorted(request.ignoreChanges)
        limits = request.customTimeouts
        if timeouts := {
            key: value for key in ("create", "update", "delete") if (value := getattr(limits, key))
        }:
            record["customTimeouts"] = timeouts
        return record


def _reference(urn: str) -> str:
    """Return `TYPE::NAME` of a URN, without the types of its parents; empty for the stack itself."""
    if not urn:
        return ""
    _, _, kind, name = urn.split("::", 3)
    own = kind.rpartition("$")[2]
    if own == EKS_CLUSTER:
        # It is inside of a remote component, which is what the program registers.
        own = EKS_COMPONENT
    return "" if own == _STACK else f"{own}::{name}"


def _provider(request: Any) -> str:
    """Return the explicit provider's reference; empty for the default one or none."""
    if request.provider:
        return _reference(request.provider.rpartition("::")[0])
    return ", ".join(sorted(_reference(p.rpartition("::")[0]) for p in request.providers.values()))


def engine_config(values: Mapping[str, Any]) -> dict[str, str]:
    """Return a stack file's values as the engine passes them to the program."""
    return {
        f"{naming.PROJECT}:{key}": value if isinstance(value, str) else json.dumps(value)
        for key, value in values.items()
    }


def _project() -> None:
    runpy.run_path(str(ROOT / "__main__.py"), run_name="__main__")


def render(
    stack: str, values: Mapping[str, Any], program: Callable[[], None] = _project
) -> list[Record]:
    """Return every resource of a stack with this configuration, parents before children, then by name.

    `program`: registers the resources. Raises pulumi.RunError with one line per issue.
    """
    recorder = _Recorder()
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    # Reset the stack of an earlier render, and what it left unfinished when it failed.
    settings.set_root_resource(None)  # type: ignore[arg-type]
    settings._get_rpc_manager().clear()
    settings.SETTINGS.outputs.clear()
    mocks.set_mocks(recorder.mocks, naming.PROJECT, stack, preview=True, monitor=recorder)
    pulumi.runtime.set_all_config(engine_config(values))
    try:
        loop.run_until_complete(run_pulumi_func(program))
    finally:
        for task in (unfinished := asyncio.all_tasks(loop)):
            task.cancel()
        loop.run_until_complete(asyncio.gather(*unfinished, return_exceptions=True))
        asyncio.set_event_loop(None)
        loop.close()
    return in_order(recorder.records.values())


def in_order(records: Any) -> list[Record]:
    found = {f"{record['type']}::{record['name']}": record for record in records}

    def path(record: Record) -> list[str]:
        above = path(found[record["parent"]]) if record["parent"] else []
        return [*above, f"{record['name']} {record['type']}"]

    return sorted(found.values(), key=path)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m infra.render", description=__doc__)
    parser.add_argument("stack", metavar="STACK", help="such as local")
    stack = parser.parse_args(arguments).stack
    try:
        records = render(stack, stack_values(ROOT / f"Pulumi.{stack}.yaml"))
    except (ConfigError, pulumi.RunError) as error:
        print(error, file=sys.stderr)
        return 1
    for record in records:
        print(json.dumps(record, sort_keys=True, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
