"""Stand-ins for the providers `aws` and `eks` that can preview, and nothing else.

Where the official plugins cannot be downloaded, these answer the real engine in their place, with no
cloud account: inputs are echoed, what only AWS knows stays unknown, look-ups are answered from
data, and anything that would create, change or read a real resource is refused in one line.
docs/previews.md tells what follows for a reader of such a preview.

`server.py` speaks the protocol, `lookups.py` holds the answers, `eks_cluster.py` says which
resources `eks.Cluster` is made of, `monitor.py` registers them with the engine.
"""
