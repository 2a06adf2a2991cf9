"""The embedded cluster: toolchain, control plane, process nodes, language host and their CLI."""
