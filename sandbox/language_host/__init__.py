"""A Pulumi language host for Python programs and plugins, on the SDK's own gRPC stubs.

The engine looks for `pulumi-language-python` on PATH; the sandbox puts a wrapper of
`python -m sandbox.language_host` there, because the official host is not in the Python package.
"""
