"""The platform: everything a run needs, from a stack's configuration to Kubernetes objects."""
