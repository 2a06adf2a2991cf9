"""Interactive pods: `trainyard dev`."""
