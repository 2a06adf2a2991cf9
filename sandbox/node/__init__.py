"""The process node: a kubelet whose containers are local processes in bubblewrap.

`python -m sandbox.node` is the daemon; `runtime.stop_all` stops all containers; `reclaim` removes a node.
"""
