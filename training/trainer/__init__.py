"""The PyTorch program that every launcher starts.

`python -m training.trainer` is one rank. It is told everything by a YAML file and the environment
that torchrun sets, and keeps all it knows in the run directory: metrics.jsonl, events.jsonl and
checkpoints/. Nothing here knows about Kubernetes.
"""
