"""Tensors of any number of ranks in bounded files that ranks of any layout load again.

    checkpoints/step-00000042/model.safetensors ...  what each rank holds
    checkpoints/step-00000042/layout.json            which box of which tensor is where
    checkpoints/step-00000042/manifest.json          size and hash of every file, and lineage

Read in this order: `layout` and `plan` (which rank writes what; without torch), `local_tensors`, `staging`,
`rank_save` and `writer` (how it is written), `loading`. Where it is written is the store's.
"""
