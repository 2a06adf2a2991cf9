"""The platform's AWS half. Imported only for a stack whose cluster is `eks`."""
