"""Checkpoints that are either whole or not there.

    checkpoints/step-00000042/model.safetensors ...  shards, each fsynced
    checkpoints/step-00000042/manifest.json          size and SHA-256 of every shard, and lineage

In a file system a checkpoint is written in a hidden folder and becomes visible by one atomic rename
(`posix`), in a bucket by one conditional write of its manifest (`s3`). Readers verify before they
load, the newest is the one with the highest step (never the youngest file), and nothing is ever
unpickled. Manifests, stores, fences, policies and the command line need no torch.
"""
