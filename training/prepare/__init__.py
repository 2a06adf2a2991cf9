"""Turns text into sharded token files that the trainer can seek in.

    python -m training.prepare --source stdlib|FOLDER --out /data/NAME

writes `OUT/VERSION/{index.json,shard-*.bin}` and `OUT/latest`. The version is a hash of what was
written, so the same text gives the same folder, and nothing is ever overwritten.
"""
