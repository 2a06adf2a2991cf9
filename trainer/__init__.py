"""The PyTorch trainer that every launcher starts. It does not depend on Kubernetes.

`python -m trainer` is one rank, configured by a YAML file and torchrun's environment. All
its output is in the run directory: metrics.jsonl, events.jsonl and checkpoints/.

Read it in this order: __main__.py, assembly.py (builds a run), loop.py, checkpointing.py, resume.py;
then data/ (samples), parallel/ (ranks and the model), metrics/ (reporting), processes/ (fork server,
exit codes, notices) and config/ (settings).
"""
