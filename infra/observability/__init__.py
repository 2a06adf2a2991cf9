"""What is watched and how: names of series, log patterns, rules and dashboards. Pure data, no cluster."""
