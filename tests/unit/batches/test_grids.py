"""Which result goes to which cell of a grid, and what the process that draws it is told."""

from __future__ import annotations

import json
from dataclasses import MISSING, dataclass, fields
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyui_agent.batches import grids
from comfyui_agent.batches.grids import GridOptions, NoGrid, make_grid
from comfyui_agent.batches.sweep_request import GridAxes
from comfyui_agent.batches.sweeps import MOST_CELLS
from comfyui_agent.config.settings import Settings
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.batches import Batch, BatchKind, BatchStatus
from comfyui_agent.domain.combinations import Axis, Combinations, Mode
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.pictures.compose import Spec
from comfyui_agent.store.store import Store
from support.stores import ScriptedStore

FOLDER = "jobs/finished/image/knights_1a2b3c4d"
THREE = {"seed": (1, 2), "cfg": (5, 6.5, 8), "text": ("a", "b", "c", "d")}


def job_of(index: int | None, **facts: Any) -> Job:
    empty: dict[str, Any] = {each.name: None for each in fields(Job)}
    outputs = (f"{FOLDER}/{index}.png",)
    usual = {"config_name": f"knights_{index}", "status": JobStatus.DONE, "outputs": outputs, "batch_index": index}
    return Job(**empty | usual | facts)


def batch_of(axes: dict[str, tuple[Any, ...]] | None, mode: Mode = Mode.MATRIX, **facts: Any) -> Batch:
    metadata: dict[str, Any] = {"folder": FOLDER}
    if axes is not None:
        metadata |= {"mode": mode.value, "axes": [{"name": n, "places": [n], "values": v} for n, v in axes.items()]}
    metadata |= facts.pop("metadata", {})
    empty: dict[str, Any] = {each.name: None for each in fields(Batch) if each.default is MISSING}
    usual = {"id": "knights_1a2b3c4d", "name": "knights", "kind": BatchKind.SWEEP, "status": BatchStatus.COMPLETE}
    return Batch(**empty | usual | {"metadata": metadata, "generation": 1} | facts)


@dataclass
class Members(ScriptedStore):
    """What is asked of a store: members, and paths, of which `taken` belong to others."""

    jobs: list[Job]
    taken: frozenset[str] = frozenset()

    async def members_after(self, _batch: str, after: Job | None, _most: int, **_: Any) -> list[Job]:
        return self.jobs if after is None else []

    async def claim_grid_files(self, _: str, paths: list[str], *_more: Any) -> str:
        return next((f"{path} belongs to the job a" for path in paths if path in self.taken), "")

    async def keep_grid_files(self, *_: Any) -> list[str]:
        return []

    async def with_unowned(self, *_: Any) -> None:
        pass


async def spec_of(
    batch: Batch, jobs: list[Job] | None = None, root: Path = Path("/night"), taken: Any = (), **options: Any
) -> dict[str, Any]:
    """The specification that the child process would get."""
    found: list[dict[str, Any]] = []

    async def compose(spec: Spec) -> None:
        document = json.loads(spec.as_json())
        found.append(document | document["grid"])

    if jobs is None:
        axes = [Axis(each["name"], (), tuple(each["values"])) for each in batch.metadata["axes"]]
        combinations = Combinations(axes, Mode(batch.metadata["mode"]))
        jobs = [
            job_of(index, metadata=json.dumps({"combination": combinations.values_at(index)}))
            for index in range(len(combinations))
        ]
    axes_chosen = GridAxes(**{key: options.pop(key) for key in ("x", "y", "pages") if key in options})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grids, "compose", compose)
        patch.setattr(Path, "mkdir", lambda *_, **__: None)
        store = cast("Store", Members(jobs, frozenset(taken)))
        await make_grid(store, Workspace(root, Settings()), batch, GridOptions(axes_chosen, **options))
    return found[0]


def cells_of(spec: dict[str, Any]) -> dict[tuple[int, int, int], dict[str, Any]]:
    """The settings of every cell by page, row and column."""
    found = {}
    for number, page in enumerate(spec["pages"]):
        for cell in page["cells"]:
            assert (number, cell["row"], cell["column"]) not in found, "two results in one cell"
            found[number, cell["row"], cell["column"]] = cell["settings"]
    return found


async def refused(batch: Batch, jobs: list[Job] | None = None, **options: Any) -> str:
    with pytest.raises(NoGrid) as caught:
        await spec_of(batch, jobs, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# Where a result goes.


async def test_the_last_two_axes_are_columns_and_rows_and_the_others_pages() -> None:
    spec = await spec_of(batch_of(THREE))
    assert [page["title"] for page in spec["pages"]] == ["seed = 1", "seed = 2"]
    assert spec["pages"][0]["columns"] == ["text = a", "text = b", "text = c", "text = d"]
    assert spec["pages"][0]["rows"] == ["cfg = 5", "cfg = 6.5", "cfg = 8"]
    assert not spec["is_sheet"]
    for (page, row, column), settings in cells_of(spec).items():
        assert settings == {"seed": (1, 2)[page], "cfg": (5, 6.5, 8)[row], "text": "abcd"[column]}


async def test_people_say_which_axis_goes_where() -> None:
    for x, y, pages in [("seed", "cfg", "text"), ("cfg", "text", "seed"), ("text", "seed", "cfg")]:
        spec = await spec_of(batch_of(THREE), x=x, y=y, pages=pages)
        found = cells_of(spec)
        assert len(found) == 24, (x, y, pages)
        for (page, row, column), settings in found.items():
            assert settings == {x: THREE[x][column], y: THREE[y][row], pages: THREE[pages][page]}


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
async def test_every_result_has_one_cell_whose_labels_are_its_own(lengths: list[int], data: st.DataObject) -> None:
    names = ["a", "b", "c", "d"][: len(lengths)]
    axes = {name: tuple(range(length)) for name, length in zip(names, lengths, strict=True)}
    chosen = data.draw(st.lists(st.sampled_from(names), unique=True, max_size=3))
    wish = dict(zip(data.draw(st.permutations(["x", "y", "pages"])), chosen, strict=False))
    spec = await spec_of(batch_of(axes), **wish)
    found = cells_of(spec)
    assert len(found) == prod(lengths)
    if spec["is_sheet"]:
        return
    for (page, row, column), settings in found.items():
        labels = [
            spec["pages"][page]["rows"][row],
            spec["pages"][page]["columns"][column],
            spec["pages"][page]["title"],
        ]
        said = {part for label in labels for part in label.split(", ") if part}
        varying = {f"{name} = {settings[name]}" for name, values in axes.items() if len(values) > 1}
        assert varying <= said <= {f"{name} = {settings[name]}" for name in names}
        if "x" in wish:
            assert labels[1] == f"{wish['x']} = {settings[wish['x']]}"
        if "y" in wish:
            assert labels[0] == f"{wish['y']} = {settings[wish['y']]}"


async def test_what_was_said_with_the_sweep_counts_until_something_else_is_said() -> None:
    batch = batch_of(THREE, metadata={"grid": {"x": "seed", "y": "text"}})
    assert (await spec_of(batch))["pages"][0]["columns"] == ["seed = 1", "seed = 2"]
    assert (await spec_of(batch, x="cfg"))["pages"][0]["columns"] == ["cfg = 5", "cfg = 6.5", "cfg = 8"]


async def test_one_axis_alone_is_a_contact_sheet() -> None:
    for axes in [{"seed": (1, 2, 3, 4, 5)}, {"seed": (1,), "cfg": (1, 2, 3, 4, 5)}]:
        spec = await spec_of(batch_of(axes))
        assert spec["is_sheet"], axes
        assert list(cells_of(spec)) == [(0, 0, 0), (0, 0, 1), (0, 0, 2), (0, 1, 0), (0, 1, 1)], axes


async def test_axes_in_step_are_a_contact_sheet_in_their_order() -> None:
    spec = await spec_of(batch_of({"seed": (1, 2, 3), "cfg": (5, 6, 7)}, Mode.LINEAR))
    assert spec["is_sheet"]
    assert [cell["label"] for cell in spec["pages"][0]["cells"]] == [
        "seed = 1, cfg = 5",
        "seed = 2, cfg = 6",
        "seed = 3, cfg = 7",
    ]


async def test_a_batch_without_axes_is_a_contact_sheet_of_its_jobs() -> None:
    spec = await spec_of(batch_of(None), [job_of(0), job_of(1), job_of(2)])
    assert [cell["label"] for cell in spec["pages"][0]["cells"]] == ["knights_0", "knights_1", "knights_2"]


async def test_truths_are_labelled_as_people_write_them() -> None:
    spec = await spec_of(batch_of({"seed": (1, 2), "tiled": (True, False)}))
    assert spec["pages"][0]["columns"] == ["tiled = true", "tiled = false"]


async def test_a_result_that_someone_deleted_leaves_its_cell_empty_and_moves_no_other() -> None:
    axes = {"seed": (1, 2), "cfg": (5, 6)}
    values = list(product((1, 2), (5, 6)))
    jobs = [
        job_of(index, metadata=json.dumps({"combination": {"seed": seed, "cfg": cfg}}))
        for index, (seed, cfg) in enumerate(values)
        if index != 1
    ]
    assert set(cells_of(await spec_of(batch_of(axes), jobs))) == {(0, 0, 0), (0, 1, 0), (0, 1, 1)}


async def test_a_member_that_someone_put_in_by_hand_does_not_spoil_the_grid() -> None:
    jobs = [job_of(index, metadata='{"combination": {}}') for index in range(5)]
    spec = await spec_of(batch_of({"seed": (1, 2), "cfg": (5, 6)}), jobs)
    assert len([cell for page in spec["pages"] for cell in page["cells"]]) >= 4


# What is in a cell.


async def test_a_cell_names_its_file_and_the_way_to_it_from_the_page() -> None:
    (cell,) = (await spec_of(batch_of({"seed": (1,)})))["pages"][0]["cells"]
    assert (cell["file"], cell["href"]) == (f"/night/{FOLDER}/0.png", "0.png")
    (cell,) = (await spec_of(batch_of({"seed": (1,)}), output=Path("/elsewhere/out.png")))["pages"][0]["cells"]
    assert cell["href"] == f"../night/{FOLDER}/0.png"


async def test_a_cell_without_a_result_says_why() -> None:
    for facts, state, reason in [
        ({"status": JobStatus.FAILED, "error_trace": "oom: too large\nat node 3"}, "failed", "oom: too large"),
        (
            {"status": JobStatus.FAILED, "failure_class": "cancelled", "error_trace": "by request"},
            "cancelled",
            "by request",
        ),
        ({"status": JobStatus.FAILED, "error_trace": None}, "failed", ""),
        ({"status": JobStatus.PENDING, "error_trace": "earlier"}, "pending", ""),
        ({"status": JobStatus.PROCESSING}, "processing", ""),
    ]:
        (cell,) = (await spec_of(batch_of(None), [job_of(0, **facts)]))["pages"][0]["cells"]
        assert (cell["file"], cell["href"], cell["state"], cell["reason"]) == (None, "", state, reason), (
            facts,
            state,
            reason,
        )


async def test_a_result_outside_the_workspace_is_not_shown() -> None:
    for path in ["../../etc/passwd", "/etc/passwd"]:
        (cell,) = (await spec_of(batch_of(None), [job_of(0, outputs=(path,))]))["pages"][0]["cells"]
        assert (cell["file"], cell["href"]) == (None, ""), path


async def test_what_someone_wrote_by_hand_does_not_spoil_a_cell() -> None:
    for metadata in [None, "", "7", "{", '{"combination": 7}', '{"combination": [1]}']:
        (cell,) = (await spec_of(batch_of(None), [job_of(0, metadata=metadata)]))["pages"][0]["cells"]
        assert (cell["settings"], cell["label"]) == ({}, "knights_0"), metadata


async def test_it_says_how_the_batch_stands() -> None:
    spec = await spec_of(batch_of({"seed": (1, 2)}, done=1, failed=1, attention=1))
    assert (spec["title"], spec["subtitle"]) == ("knights", "1 of 2 done, 1 needs attention")


# Files.


async def test_picture_and_page_lie_beside_the_results() -> None:
    for kind, ending in [("png", "png"), ("jpeg", "jpg")]:
        spec = await spec_of(batch_of({"seed": (1, 2)}), format=kind, cell_pixels=64)
        assert (spec["picture"], spec["page"]) == (f"/night/{FOLDER}/grid.{ending}", f"/night/{FOLDER}/grid.html"), (
            kind,
            ending,
        )
        assert (spec["format"], spec["cell_pixels"]) == (kind, 64), (kind, ending)


async def test_people_say_where_it_goes() -> None:
    spec = await spec_of(batch_of({"seed": (1, 2)}), output=Path("/elsewhere/out.png"))
    assert (spec["picture"], spec["page"]) == ("/elsewhere/out.png", "/elsewhere/out.html")


async def test_a_batch_without_a_folder_has_one_of_its_own() -> None:
    for facts, folder in [
        ({"job_type": "T2I"}, "image/knights_1a2b3c4d"),
        ({"job_type": "T2V", "outputs": ("a.mp4",)}, "video/knights_1a2b3c4d"),
        ({"job_type": "?"}, "image/knights_1a2b3c4d"),
    ]:
        spec = await spec_of(batch_of(None, metadata={"folder": None}), [job_of(0, **facts)])
        assert spec["picture"] == f"/night/jobs/finished/{folder}/grid.png", (facts, folder)


async def test_a_batch_whose_id_a_hand_wrote_has_its_folder_among_the_results() -> None:
    for batch_id in ["../../config", "/etc/x", "..", ".hidden", "a\\b", ""]:
        spec = await spec_of(batch_of(None, id=batch_id, metadata={"folder": None}), [job_of(0)])
        assert Path(spec["picture"]).parent.parent == Path("/night/jobs/finished/image"), batch_id


async def test_a_grid_whose_place_is_taken_lies_in_a_folder_below() -> None:
    for name in ["grid.png", "grid_2.png", "grid.html"]:
        spec = await spec_of(batch_of(THREE), taken=[f"{FOLDER}/{name}"])
        assert (spec["picture"], spec["page"]) == (
            f"/night/{FOLDER}/grid/grid.png",
            f"/night/{FOLDER}/grid/grid.html",
        ), name
        assert spec["pages"][0]["cells"][0]["href"] == "../0.png", name
        words = await refused(batch_of(THREE), taken=["out.html"], output=Path("/night/out.png"))
        assert words == "out.html belongs to the job a: name another --output", name


# What cannot be.


async def test_an_axis_that_is_not_there_is_refused_with_those_that_are() -> None:
    for key in ["x", "y", "pages"]:
        words = await refused(batch_of(THREE), **{key: "steps"})
        assert words == f"--{key} 'steps' is no axis of knights_1a2b3c4d; there are seed, cfg, text", key


async def test_one_axis_in_two_places_is_refused() -> None:
    assert await refused(batch_of(THREE), x="cfg", y="cfg") == "--x, --y and --pages need different axes"


async def test_axes_for_a_batch_that_has_none_are_refused() -> None:
    words = await refused(batch_of(None), [job_of(0)], x="seed")
    assert words == "the batch knights_1a2b3c4d has no axes: leave out --x, --y and --pages"


async def test_nothing_and_too_much_are_refused() -> None:
    assert await refused(batch_of(None), []) == "the batch knights_1a2b3c4d has no results"
    words = await refused(batch_of(None), [job_of(0)] * (MOST_CELLS + 1))
    assert words == "10,001 results are too many for a grid: at most 10,000"


async def test_a_folder_outside_the_workspace_is_refused() -> None:
    for folder in ["../outside", "/etc", "config", "workflows"]:
        assert folder in await refused(batch_of(None, metadata={"folder": folder}), [job_of(0)]), folder
