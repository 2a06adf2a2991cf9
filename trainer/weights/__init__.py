"""Fetch a model's configuration, weights and tokenizer into a folder: from a hub of models, or from S3.

reference.py  hub:ORG/NAME@COMMIT and s3://BUCKET/PREFIX, and the folder of each on the team's volume
places.py     a commit at a hub, through huggingface_hub, or a prefix of a bucket
fetch.py      each file verified, all visible at once
"""
