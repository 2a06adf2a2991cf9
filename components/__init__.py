"""Trainyard as Pulumi components for programs in any language: docs/components.md."""

from components.facade import Platform, Team, TrainingRun

__all__ = ["Platform", "Team", "TrainingRun"]
