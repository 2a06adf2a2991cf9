"""Serve the components to Pulumi's engine, which starts this folder as a plugin."""

import sys
from pathlib import Path
from typing import Any

import pulumi
from pulumi import provider

ROOT = Path(__file__).resolve().parents[1]


def serve() -> None:
    """Serve until the engine ends this process."""
    sys.path[0] = str(ROOT)  # in place of the plugin's folder
    from components import facade, schema

    facade.refusal = lambda lines: pulumi.InputPropertiesError(lines, [])

    class Package(provider.Provider):
        """The package `trainyard`."""

        def construct(
            self,
            name: str,
            resource_type: str,
            inputs: pulumi.Inputs,
            options: pulumi.ResourceOptions | None = None,
        ) -> provider.ConstructResult:
            component = facade.COMPONENTS[resource_type](name, inputs, options)
            outputs: dict[str, Any] = component.outputs
            return provider.ConstructResult(component.urn, outputs)

    provider.main(Package(schema.RELEASE, schema.text()), sys.argv[1:])


if __name__ == "__main__":
    serve()
