"""One module per section of the stack file: its model, checks and conversion to arguments."""
