"""S3 client for objects below one prefix, used by checkpoints and datasets.

    location.py   s3://BUCKET/PREFIX
    connection.py credentials; errors of requests and which of them are retried
    client.py     list, read, write conditionally and delete, with retries
    upload.py     multipart upload from memory, parts in parallel

Keys are relative to the location's prefix. botocore is loaded with the first request.
"""

from trainyard.objects.client import ListedObject, Objects
from trainyard.objects.connection import (
    AccessDenied,
    ObjectError,
    ObjectExists,
    ObjectMissing,
    ObjectsUnavailable,
    RetryPolicy,
)
from trainyard.objects.location import BadLocation, Location

__all__ = [
    "AccessDenied",
    "BadLocation",
    "ListedObject",
    "Location",
    "ObjectError",
    "ObjectExists",
    "ObjectMissing",
    "Objects",
    "ObjectsUnavailable",
    "RetryPolicy",
]
