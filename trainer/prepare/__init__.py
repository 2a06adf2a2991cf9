"""Tokenize text into sharded files that the trainer reads at random positions.

    python -m trainer.prepare --source stdlib|FOLDER|s3://... [--tokenizer FILE|train:VOCAB] --out /data/NAME

writes `OUT/VERSION/{index.json,shard-*}` and `OUT/latest`. The version is a hash of the content, so
the same text gives the same folder, and nothing is overwritten.
"""
