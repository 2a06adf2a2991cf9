"""Plain records and arithmetic that every other package builds on; no Pulumi resources."""
