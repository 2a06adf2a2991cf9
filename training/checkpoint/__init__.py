"""Atomic, checksummed checkpoints that any number of ranks can load.

    checkpoints/step-00000042/model.safetensors ...  what each rank holds, in bounded files
    checkpoints/step-00000042/layout.json            which box of which tensor is where
    checkpoints/step-00000042/manifest.json          size and hash of every file, and lineage

Each rank writes its own files into a hidden folder, which becomes visible by one atomic rename.
Readers verify what they load, the newest is the one with the highest step (never the youngest
file), and nothing is ever unpickled.

The store itself, its format and its retention are in `trainyard.store`, for programs of users as well. Read in
this order: `trainyard.store.interface`, `posix` and `durable`; `layout` and `plan` (which rank writes what),
`contents` (what is written), `staging`, `rank_save`, `coordination` and `writer` (how), `loading`,
`restore`. Of these, the store, `layout`, `plan` and the command line's list, verify and explain need no
torch.
"""
