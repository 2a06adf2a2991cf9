"""S3 client for objects below one prefix, used by checkpoints and datasets.

    location.py   s3://BUCKET/PREFIX
    failures.py   what a request can end with, and what of it is worth another try
    client.py     list, read, write on a condition, delete; each call within its retry
    upload.py     one large object from pieces of memory, parts in parallel

Keys are always relative to the location's prefix, so nobody leaves it by accident. Importing this
needs the standard library only; botocore is loaded with the first request.
"""

from training.objects.client import ListedObject, Objects
from training.objects.errors import (
    AccessDenied,
    ObjectError,
    ObjectExists,
    ObjectMissing,
    ObjectsUnavailable,
    RetryPolicy,
)
from training.objects.location import BadLocation, Location

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
