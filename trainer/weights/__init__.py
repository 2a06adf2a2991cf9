"""Fetch a model's configuration, weights and tokenizer into a folder: from a hub of models, or from S3.

reference.py  hub:ORG/NAME@COMMIT and s3://BUCKET/PREFIX, and the folder of each on the team's volume
files.py      which files are fetched, and the checksums that their places state
hub.py        a commit at huggingface.co or another hub, downloaded by huggingface_hub
bucket.py     a prefix of a bucket
fetch.py      each file verified, all visible at once
"""
