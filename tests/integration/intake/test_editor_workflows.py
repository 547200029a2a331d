"""A job file whose workflow no server can convert now waits for one, and is taken in then."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from comfyui_agent.config import converted_workflows
from support.editor_workflows import document, node
from support.intake import complaints, intake, until
from support.servers import free_port, simulator

JOB = "job_type: T2I\nworkflow_id: mine\ninputs: {color: 3}\n"


async def test_a_job_file_waits_until_a_server_answers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(converted_workflows, "FAILED_SECONDS", 0.0)
    port = free_port()
    async with intake(tmp_path / "night", E3_COMFYUI__API_BASE_URL=f"http://127.0.0.1:{port}") as room:
        (room.root / "workflows" / "mine.json").write_text(json.dumps(document([node(1, "EmptyImage", values=[8, 8])])))
        file = room.drop(content=JOB)
        room.start()

        async def is_said() -> bool:
            return any("cannot be taken in yet" in each and "none answers at" in each for each in complaints(caplog))

        await until(is_said, "the complaint that no server answers")
        assert file.exists()
        server = simulator(tmp_path / "sim", port=port).start()
        try:
            job = await room.taken()
        finally:
            server.stop()
        assert json.loads(job.inputs or "") == {"1.color": 3}
