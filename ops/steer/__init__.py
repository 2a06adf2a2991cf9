"""Steer queued gangs between the pools of their queue, by the decisions of `training.spot`."""
