"""`e3 star` and `e3 export`: what people like, and taking it along."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import pytest

from comfyui_agent.domain.jobs import Template
from comfyui_agent.store import operations as ops
from comfyui_agent.store.store import Store
from support.agents import AgentWorkspace
from support.pictures import opened, png
from support.stores import lease, wish
from support.workspaces import call_e3, new_workspace


async def _night(store: Store) -> None:
    loads = Template.of({"4": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "auto"}}})
    await store.run(ops.submit_jobs, [wish("fox", template=loads), wish("owl"), wish("waits")])
    sent = json.dumps({"4.ckpt_name": "dream.safetensors"})
    for leased in await lease(store, most=2):
        as_sent = replace(leased.lease, sent=sent)
        await store.run(ops.complete_job, as_sent, [f"jobs/finished/image/{leased.config_name}.png"], 1.0)


@pytest.fixture
def night(tmp_path: Path) -> AgentWorkspace:
    """Two results, and a job that waits."""
    made = new_workspace(tmp_path / "night")
    made.store(_night)
    folder = made.root / "jobs/finished/image"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("fox", "owl"):
        (folder / f"{name}.png").write_bytes(png())
    return made


def test_what_has_a_star_is_exported(night: AgentWorkspace) -> None:
    answer = call_e3("star", "fox", "waits", cwd=night.root)
    assert (answer.returncode, answer.stdout) == (1, "● Done  fox (1)  ★\n")
    assert answer.stderr == "e3: waits: it waits already: only results can be rated\n"
    assert call_e3("star", "--reject", "owl", cwd=night.root).stdout == "● Done  owl (2)  rejected\n"
    answer = call_e3("export", "--starred", "best.zip", cwd=night.root)
    assert (answer.returncode, answer.stdout) == (0, "1 result in best.zip\n")
    with ZipFile(night.root / "best.zip") as archive:
        assert archive.namelist() == ["fox.png", "results.csv"]
        assert b"dream.safetensors,fox.png" in archive.read("results.csv"), "not auto"
    assert call_e3("export", "fox", "2", "sheet.png", cwd=night.root).stdout == "2 results in sheet.png\n"
    assert opened((night.root / "sheet.png").read_bytes()).format == "PNG"
    call_e3("star", "--clear", "fox", cwd=night.root)
    answer = call_e3("export", "--starred", "none.zip", cwd=night.root)
    assert (answer.returncode, answer.stderr) == (1, "e3: none of these has a result\n")
    assert sorted(each.name for each in night.root.glob("*.zip")) == ["best.zip"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["fox", "best.pdf"], 2, "best.pdf is neither FILE.zip nor FILE.png: name the file last"),
        (["best.zip"], 2, "name the jobs, or say --starred or --batch ID"),
        (["--starred", "fox", "best.zip"], 2, "name the jobs, or say --starred or --batch ID"),
        (["nobody", "best.zip"], 1, "there is no job 'nobody': see e3 queue ls"),
        (["fox", "no/such/best.zip"], 1, "no/such/best.zip cannot be written: No such file or directory"),
    ],
)
def test_what_cannot_be_exported_is_one_line(
    night: AgentWorkspace, arguments: list[str], code: int, words: str
) -> None:
    answer = call_e3("export", *arguments, cwd=night.root)
    assert (answer.returncode, answer.stderr) == (code, f"e3: {words}\n")
