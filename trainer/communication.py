"""Failures of the exchange between ranks; without torch, which the entry point loads late."""


def is_communication(error: BaseException) -> bool:
    """Return whether the exchange with other ranks failed."""
    text = str(error)
    return type(error).__name__ == "DistStoreError" or "gloo" in text or "NCCL" in text
