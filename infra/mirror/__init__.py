"""What the mirror of a closed network must have."""
