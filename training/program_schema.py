"""The section `program` of a run file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from infra.sections.types import Int, Str, StrictModel

Text = Annotated[str, Field(strict=True)]


class ProgramSection(StrictModel):
    """The program that the run starts instead of the built-in trainer; see docs/programs.md."""

    launcher: Literal["torchrun", "accelerate", "deepspeed", "mpirun", "python"] = "torchrun"
    """What starts the ranks. Rank counts and addresses are derived from the run."""
    command: tuple[Str, ...] = Field(
        min_length=1, description="the script and its arguments, such as [train.py, --lr, '0.1']"
    )
    """Script and arguments; placeholders such as {checkpoints} are expanded."""
    source: Str | None = None
    """Folder of the repository with the code, packed by content. Default: the code is in the image."""
    env: dict[Str, Text] = Field(default_factory=dict)
    """Environment variables of the program; placeholders are expanded."""
    accelerate: Str | None = None
    """Accelerate's configuration, a YAML file of the repository."""
    deepspeed: Str | None = None
    """DeepSpeed's configuration, a JSON file of the repository; mounted as {deepspeed_config}."""
    model_parameters: Int | None = Field(default=None, ge=1)
    """Number of parameters, to check DeepSpeed's offload against memory."""
    tracking_uri: Str | None = None
    """MLflow server, http or https. Default: none."""
    progress_timeout_seconds: Int | None = Field(default=None, ge=0)
    """Seconds without a report of `trainyard.log` or a checkpoint, after the first one, after which the ranks
    fail as hung; 0: never. Default: 3600."""
