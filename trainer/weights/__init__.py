"""Fetch a model's configuration, weights and tokenizer into a folder: from a hub of models, or from S3.

reference.py  hub:ORG/NAME@COMMIT and s3://BUCKET/PREFIX, and the folder of each on the team's volume
files.py      which files are fetched, and the interface of the places that hold them
checksums.py  the checksums that places know of their files
hub.py        a hub with the HTTP interface of huggingface.co
bucket.py     a prefix of a bucket
fetch.py      resumable download, each file verified, all visible at once
"""
