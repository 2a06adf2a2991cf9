"""A rank's part of the model: built without memory, divided, filled with its own weights, and run.

| module | what |
|---|---|
| architecture.py | the transformers model on the meta device: shapes and names, no numbers |
| tensor.py | cuts the blocks' matrices over the ranks of a tensor group |
| stages.py | cuts the blocks over the ranks of a pipeline, and runs micro-batches through it |
| building.py | puts these, FSDP2 or DDP, recomputation and compilation together, in that order |
| initial.py | random initial weights, drawn shard by shard, the same for every layout |
| weights.py | initial weights from safetensors, read shard by shard |
| regions.py | which part of a whole tensor a rank holds, and how many ranks hold the same |
| passes.py | forward and backward passes over micro-batches, for training and evaluation |
| clipping.py | the gradients' global norm, whatever they are divided over |
"""
