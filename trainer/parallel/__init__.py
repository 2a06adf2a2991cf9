"""A rank's place in the world, and its part of the model: built on meta, sharded, initialized, run.

| module | what |
|---|---|
| world.py | the ranks of a run: rendezvous, data shares, small agreements over gloo |
| architecture.py | the transformers model on the meta device: shapes and names, no memory |
| tensor_parallel.py | shards the blocks' matrices over a tensor-parallel group |
| pipeline_stages.py | splits the blocks into pipeline stages |
| build.py | applies these, then activation checkpointing, compilation, FSDP2 or DDP, in that order |
| initialization.py | random initial weights, drawn per shard, the same for every layout |
| pretrained.py | initial weights from safetensors, read per shard |
| passes.py, pipeline_passes.py | forward and backward passes over micro-batches |
"""
