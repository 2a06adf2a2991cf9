"""Copies of runs in a bucket.

contents.py   which files of a run directory are copied, and how they are read
copying.py    bring the copy of a run up to date
__main__.py   the same for every run of a team's volume: the CronJob `results-copy`
"""
