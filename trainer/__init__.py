"""The PyTorch trainer that every launcher starts. It does not depend on Kubernetes.

`python -m trainer` is one rank, configured by a YAML file and torchrun's environment. All
its output is in the run directory: metrics.jsonl, events.jsonl and checkpoints/.

Read it in this order:

| part | modules |
|---|---|
| entry | __main__.py, preflight.py (checks before torch is loaded), assembly.py (builds a run) |
| configuration | config/settings.py, config/rules.py |
| model and parallelism | parallel/architecture.py, parallel/build.py, optimizer.py |
| step | loop.py, parallel/passes.py, groups.py (elastic runs) |
| evaluation, checkpoints | evaluation.py, checkpointing.py, publication.py |

data/ has the samples, metrics/ what is reported; the other folders are programs of their own in the same image.
"""
