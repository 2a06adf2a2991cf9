"""The process node: a kubelet whose containers are local processes in bubblewrap.

`python -m sandbox.node` is the daemon; `stop_all` ends what it left running; `reclaim` takes a node away.
"""
