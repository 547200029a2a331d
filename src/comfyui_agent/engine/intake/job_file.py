"""What a job file says."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from comfyui_agent.config.settings import Number, Priority, Whole
from comfyui_agent.config.validation import Section
from comfyui_agent.domain.kinds import FOLDERS, folder_of


def _kind(value: Any) -> Any:
    if isinstance(value, str):
        folder_of(value)
        return value.upper()
    return value


NodeId = Annotated[str, Field(min_length=1), BeforeValidator(lambda value: str(value) if type(value) is int else value)]
KINDS = f"one of {', '.join(FOLDERS)}"


class Outputs(Section):
    file_path: Annotated[str, Field(min_length=1, max_length=1000)] | None = Field(
        default=None, description="a path in the workspace, such as jobs/finished/image/knight.png"
    )
    node: NodeId | None = Field(default=None, description='the id of a node, such as "9"')


class JobFile(Section):
    """One job, as people write it."""

    job_type: Annotated[str, BeforeValidator(_kind)] = Field(description=KINDS)
    workflow_id: Annotated[str, Field(min_length=1, max_length=200)] = Field(
        description="the name of a workflow in workflows.yaml, in quotes if it is a number"
    )
    priority: Priority | None = Field(default=None, description="a whole number; lower runs earlier, such as 50")
    inputs: dict[str, Any] = Field(default={}, description="a mapping of names to values, such as seed: 7")
    outputs: Outputs = Field(default=Outputs(), description="a mapping with file_path or node")
    metadata: dict[str, Any] | None = Field(default=None, description="a mapping of names to values")
    retry_limit: Annotated[Whole, Field(ge=0, le=1000)] | None = Field(
        default=None, description="a whole number from 0 to 1000, such as 2"
    )
    timeout_seconds: Annotated[Number, Field(gt=0, le=7 * 24 * 3600)] | None = Field(
        default=None, description="a number of seconds above 0, such as 300"
    )
    reuse: Literal["same"] | None = Field(
        default=None, description="same: take the recorded result of a job that was made of the same, if there is one"
    )
