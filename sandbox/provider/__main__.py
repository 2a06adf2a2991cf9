"""`python -m sandbox.provider ENGINE_ADDRESS`: print the port, serve until ended."""

from __future__ import annotations

import sys

from sandbox import pulumi_plugin

CONCURRENT_CALLS = 128
"""A call occupies a worker while it waits until an object is ready or deleted."""


def main(arguments: list[str]) -> int:
    engine = pulumi_plugin.engine_address(arguments)
    if engine is None:
        print("usage: python -m sandbox.provider ENGINE_ADDRESS", file=sys.stderr)
        return 2
    pulumi_plugin.skip_sdk_import()
    from pulumi.runtime.proto import provider_pb2_grpc

    from sandbox.provider.server import Provider

    provider = Provider(engine)
    pulumi_plugin.serve(
        lambda server: provider_pb2_grpc.add_ResourceProviderServicer_to_server(provider, server),
        workers=CONCURRENT_CALLS,
        on_stop=provider.stop,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
