"""The embedded cluster: toolchain, control plane, process nodes, provider stand-in and their CLI."""
