"""`python -m sandbox.aws_preview PACKAGE ENGINE_ADDRESS`: print the port, serve until ended."""

from __future__ import annotations

import sys

from sandbox import pulumi_plugin

CONCURRENT_CALLS = 64


def main(arguments: list[str]) -> int:
    engine = pulumi_plugin.engine_address(arguments[1:])
    if engine is None or arguments[0] not in ("aws", "eks"):
        print("usage: python -m sandbox.aws_preview {aws,eks} ENGINE_ADDRESS", file=sys.stderr)
        return 2
    pulumi_plugin.skip_sdk_import()
    from pulumi.runtime.proto import provider_pb2_grpc

    from sandbox.aws_preview.server import AwsProvider, EksProvider

    provider = {"aws": AwsProvider, "eks": EksProvider}[arguments[0]]()
    pulumi_plugin.serve(
        lambda server: provider_pb2_grpc.add_ResourceProviderServicer_to_server(provider, server),
        workers=CONCURRENT_CALLS,
        on_stop=lambda: None,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
