"""AWS resources of a stack. Imported only for a stack whose cluster is `eks`."""
