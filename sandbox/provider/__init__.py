"""Stand-in for the official Kubernetes provider plugin, for machines that cannot download it.

It implements the resource provider protocol with the official plugin's resource types, ids and state, so
that a program and its state work with either. README.md lists what matches and what does not.
"""

VERSION = "4.34.2"
"""Version of the official plugin that this one matches."""
