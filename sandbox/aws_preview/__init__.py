"""Preview-only stand-ins for the providers `aws` and `eks`.

They replace the official plugins in previews without a cloud account: inputs are
echoed, values that only AWS knows stay unknown, invokes are answered from data, and requests that would
create, change or read a real resource fail with one line. docs/previews.md describes how to read such a
preview.

`server.py` implements the protocol, `lookups.py` answers invokes, `eks_cluster.py` plans the resources of
`eks.Cluster`.
"""
