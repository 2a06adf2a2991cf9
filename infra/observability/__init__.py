"""Metric names, log patterns, rules, alerts and dashboards as data; the component that deploys them."""
