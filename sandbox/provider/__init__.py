"""A stand-in for the official Kubernetes provider plugin, for machines that cannot download it.

It speaks the engine's resource provider protocol and keeps the official plugin's resource types,
ids and state, so a program and its state work with either. README.md lists what is matched, and what is not.
"""

VERSION = "4.34.2"
"""The version of the official plugin whose behaviour this one keeps."""
