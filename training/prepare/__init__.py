"""Turns text into sharded token files that the trainer can seek in.

    python -m training.prepare --source stdlib|FOLDER|s3://... [--tokenizer FILE|train:VOCAB] --out /data/NAME

writes `OUT/VERSION/{index.json,shard-*}` and `OUT/latest`. The version is a hash of what was
written, so the same text gives the same folder, and nothing is ever overwritten.
"""
