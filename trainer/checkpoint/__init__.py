"""The trainer's checkpoints: what they contain, and the command that lists, verifies, explains and exports them.

`trainyard.tensors` writes and loads them, `trainyard.store` keeps them.
"""
