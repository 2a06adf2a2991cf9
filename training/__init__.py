"""From run files to deployed runs. No trainer imports this, and no image needs it."""
