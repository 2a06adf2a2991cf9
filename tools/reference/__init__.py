"""JSON Schemas and reference pages, generated from the models of the files that people write."""
