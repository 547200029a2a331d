"""Four states, four words, four marks, the same wherever people look; and what needs no attention says so."""

from __future__ import annotations

from comfyui_agent.domain.badges import BADGES, BATCH_MARKS, SERVER_MARKS, WITHOUT_ATTENTION
from comfyui_agent.domain.batches import BatchStatus
from comfyui_agent.domain.server_states import ServerState
from comfyui_agent.domain.states import JobStatus


def test_every_state_of_a_job_has_its_badge() -> None:
    assert [str(BADGES[status]) for status in JobStatus] == ["○ Pending", "◐ Rendering", "● Done", "△ Needs attention"]


def test_every_state_of_a_batch_and_of_a_server_has_one_of_the_same_marks() -> None:
    marks = {badge.mark for badge in [*BADGES.values(), *WITHOUT_ATTENTION.values()]}
    assert BATCH_MARKS.keys() == set(BatchStatus)
    assert SERVER_MARKS.keys() == {"up", "down", "stuck", *(halt.value for halt in ServerState)}
    assert {*BATCH_MARKS.values(), *SERVER_MARKS.values()} <= marks
