"""Datasets as the trainer reads them: version, windows, order, mixture, local copies, prefetching."""
