"""`python -m sandbox.language_host ENGINE_ADDRESS`: print the port, serve until ended."""

from __future__ import annotations

import sys

from sandbox import pulumi_plugin

CONCURRENT_CALLS = 16
"""Run and RunPlugin hold a worker for as long as the program or the plugin lives."""


def main(arguments: list[str]) -> int:
    engine = pulumi_plugin.engine_address(arguments)
    if engine is None:
        print("usage: python -m sandbox.language_host ENGINE_ADDRESS", file=sys.stderr)
        return 2
    pulumi_plugin.skip_sdk_import()
    from pulumi.runtime.proto import language_pb2_grpc

    from sandbox.language_host.server import LanguageHost

    host = LanguageHost(engine)
    pulumi_plugin.serve(
        lambda server: language_pb2_grpc.add_LanguageRuntimeServicer_to_server(host, server),
        workers=CONCURRENT_CALLS,
        on_stop=host.stop,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
