"""Grids and results that want the same names: every one of them is there in the end, whoever came first."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from support.agents import AgentWorkspace
from support.batches import document
from support.breakage import Start
from support.workspaces import call_e3, drop, job_text, new_workspace, start_e3

SHARED = "jobs/finished/image"
BOOK = f"{SHARED}/fox"
NAMES = ["grid.png", "grid_2.png", "grid_3.png"]
PAGES = 3


def book(color: int) -> str:
    pages = "".join(f"  - inputs: {{color: {color + number}}}\n" for number in range(PAGES))
    return f"book_id: fox\nworkflow: picture\npages:\n{pages}"


def grid_of(workspace: AgentWorkspace, batch_id: str) -> list[Path]:
    """The files of a grid that is made now, each of them a whole picture or a page."""
    made = document(call_e3("batch", "grid", batch_id, "-C", str(workspace.root), "--json"))
    pictures = [Path(each) for each in made["pictures"]]
    for path in pictures:
        with Image.open(path) as picture:
            picture.load()
    return [*pictures, Path(made["page"])]


@pytest.fixture
def workspace(start_server: Start, tmp_path: Path) -> AgentWorkspace:
    return new_workspace(tmp_path / "night", start_server().url)


@pytest.mark.slow
def test_jobs_called_like_grids_lose_nothing_and_neither_do_the_grids(
    workspace: AgentWorkspace, request: pytest.FixtureRequest
) -> None:
    """The attack: results called grid.png, grid_2.png, … where a batch then makes its grid, which had fewer pages."""
    request.addfinalizer(workspace.stop_all)
    start_e3(workspace, "run", "-C", str(workspace.root))
    attackers = {}
    for number, path in enumerate(f"{folder}/{name}" for folder in (SHARED, BOOK) for name in NAMES):
        drop(workspace, f"evil_{number}.yaml", job_text(1000 + number, outputs={"file_path": path}))
        attackers[path] = workspace.root / path
    workspace.wait_done(len(attackers))
    before = {path: file.read_bytes() for path, file in attackers.items()}

    (workspace.root / "fox.yaml").write_text(book(2000), encoding="utf-8")
    assert call_e3("book", "create", str(workspace.root / "fox.yaml"), "-C", str(workspace.root)).returncode == 0
    own = workspace.root / "own"
    own.mkdir()
    for number in range(2):
        (own / f"own_{number}.yaml").write_text(job_text(3000 + number), encoding="utf-8")
    added = call_e3("add", "--batch", "tonight", *map(str, sorted(own.iterdir())), "-C", str(workspace.root))
    assert added.returncode == 0, added.stderr
    workspace.wait_done(len(attackers) + PAGES + 2)

    grids = [*grid_of(workspace, "fox"), *grid_of(workspace, "tonight")]
    again = [*grid_of(workspace, "fox"), *grid_of(workspace, "tonight")]
    assert again == grids
    assert {path: file.read_bytes() for path, file in attackers.items()} == before
    results = [path for job in workspace.jobs() for path in job.outputs]
    assert all((workspace.root / path).is_file() for path in results)
    assert not {path.relative_to(workspace.root).as_posix() for path in grids} & set(results)
    assert grids[0] == workspace.root / BOOK / "grid" / "grid.png"
    assert grids[2].parent.parent == workspace.root / SHARED, "a batch without a folder has one of its own"

    # The reverse: a job that wants the place of a grid, known when it comes or only when its ending is.
    bytes_of_grids = [path.read_bytes() for path in grids]
    for number, path in enumerate([grids[2], grids[0].with_suffix(".webp")]):
        said = path.relative_to(workspace.root).as_posix()
        drop(workspace, f"late_{number}.yaml", job_text(4000 + number, outputs={"file_path": said}))
    workspace.wait_for(lambda: workspace.counts().failed == 2, "both to be refused")
    traces = [workspace.job(f"late_{number}.yaml").error_trace or "" for number in range(2)]
    assert all("belongs to the grid of " in trace for trace in traces), traces
    assert [path.read_bytes() for path in grids] == bytes_of_grids
