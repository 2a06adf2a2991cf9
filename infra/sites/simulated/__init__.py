"""Node pools and storage of the local stack, with the same outputs as a cloud's and no cloud."""
