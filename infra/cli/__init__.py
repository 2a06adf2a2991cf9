"""Commands about a stack that need no cluster: render, mirror, catalog, crds."""
