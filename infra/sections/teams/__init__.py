"""The section `teams`: its model, and a module for each group of checks."""
