"""Copies of runs in a bucket.

copying.py    which files of a run directory are copied, and how a copy is brought up to date
__main__.py   the same for every run of a team's volume: the CronJob `results-copy`
"""
