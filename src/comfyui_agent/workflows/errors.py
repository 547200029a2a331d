"""What is wrong with a workflow file.

WorkflowError
├── NoWorkflowFound     the file carries no workflow
├── BadWorkflow         the document is not shaped like a workflow
├── NotConvertible      a node whose conversion would be a guess
└── NoDefinitions       no server answers that could say what its nodes are
"""

from __future__ import annotations

from comfyui_agent.domain.texts import whole

LONGEST = 60


class WorkflowError(Exception):
    """A workflow that cannot be used. Its message is one line."""


class NoWorkflowFound(WorkflowError):
    """The file carries no workflow."""


class BadWorkflow(WorkflowError):
    """The document is not shaped like a workflow."""


class NotConvertible(WorkflowError):
    """A node that cannot be converted surely: its id, its title and the reason."""

    def __init__(self, node_id: str, title: str, reason: str) -> None:
        super().__init__(f"node {shown(node_id)} ({shown(title)}): {reason}")
        self.reason = reason


class NoDefinitions(WorkflowError):
    """A workflow in UI format, and no server answers that could say what its nodes are. Later one may."""


def shown(text: object) -> str:
    """A text of the file, on one line and cut short."""
    return whole(" ".join(str(text).split()), LONGEST)
