"""Where a cluster comes from: one package per cloud, and simulated nodes."""
