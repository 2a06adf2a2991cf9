"""Budgets of teams: warn, hold the queue, drain what spot or low priority runs."""
