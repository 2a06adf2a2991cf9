"""The ledger: where every second of every node went, in node-seconds and USD."""
