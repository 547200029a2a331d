"""A book becomes a batch of pages: what is wrong with its file is said with the line, and a page can be made anew."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from comfyui_agent.batches.books import Book, BookText, read_book
from comfyui_agent.batches.regeneration import BadPage, page_again
from comfyui_agent.config.settings import Books, Settings
from comfyui_agent.config.validation import Complaints
from comfyui_agent.config.workflows import NoWorkflow, Workflow
from comfyui_agent.domain.batches import BatchKind
from comfyui_agent.domain.binding import Places, Recipe
from comfyui_agent.domain.jobs import NewJob, Template
from comfyui_agent.domain.prompts import place

PAINTING: dict[str, Any] = {
    "3": {"class_type": "KSampler", "inputs": {"seed": 7, "steps": 20}},
    "4": {"class_type": "KSamplerAdvanced", "inputs": {"noise_seed": 7, "model": ["3", 0]}},
    "6": {"class_type": "CLIPTextEncode", "inputs": {"text": "a knight"}},
    "9": {"class_type": "SaveImage", "inputs": {"images": ["3", 0], "filename_prefix": "x"}},
}
FILM: dict[str, Any] = {
    "1": {"class_type": "LoadImage", "inputs": {"image": "example.png"}},
    "2": {"class_type": "SaveWEBM", "inputs": {"images": ["1", 0], "fps": 8.0}},
}
TONELESS: dict[str, Any] = {
    "1": {"class_type": "EmptyImage", "inputs": {"color": 1}},
    "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "x"}},
}


LONG = "snow " * 10_000
SEEDED = {seed: {"3.seed": seed, "4.noise_seed": seed} for seed in (1, 2)}


def workflow_of(workflow_id: str, graph: dict[str, Any], **recipe: Any) -> Workflow:
    facts = {"workflow_id": workflow_id, "template_path": f"workflows/{workflow_id}.json", **recipe}
    return Workflow(Recipe(**facts), Template.of(graph), graph, Places(graph))


WORKFLOWS = {
    "painting": workflow_of(
        "painting",
        PAINTING,
        required_inputs=("prompt",),
        inputs={"prompt": ("6.text",), "steps": ("3.steps",), "seed": ("3.seed", "4.noise_seed")},
    ),
    "seeded": workflow_of(
        "seeded",
        PAINTING,
        required_inputs=("prompt", "seed"),
        inputs={"prompt": ("6.text",), "steps": ("3.steps",), "seed": ("3.seed", "4.noise_seed")},
    ),
    "film": workflow_of("film", FILM),
    "toneless": workflow_of("toneless", TONELESS),
}


def find(name: str) -> Workflow:
    if name not in WORKFLOWS:
        raise NoWorkflow(f"{name!r} is not in workflows.yaml")
    return WORKFLOWS[name]


def read(path: Path, content: Any, settings: Settings | None = None, keep: Any = None) -> Book:
    path = path / "book.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return read_book(BookText(path), settings or Settings(), find, keep or (lambda *_: {}))


def complaints_of(path: Path, content: Any) -> list[str]:
    """All that is wrong, each without the name of the file."""
    with pytest.raises(Complaints) as caught:
        read(path, content)
    return [str(each).removeprefix(f"{path}/book.yaml").removeprefix(":") for each in caught.value.found]


WINTER = {
    "book_id": "winter_tales",
    "title": "Winter tales",
    "workflow": "painting",
    "inputs": {"steps": 12, "prompt": "snow"},
    "pages": [{"inputs": {"prompt": "a fox"}}, {"inputs": {"prompt": "a cat", "steps": 3}}, {}, None],
}


def test_every_page_is_a_job_with_what_the_book_says_and_on_top_what_the_page_says(tmp_path: Path) -> None:
    book = read(tmp_path, WINTER)
    assert (book.batch.id, book.batch.name, book.batch.kind) == ("winter_tales", "Winter tales", BatchKind.BOOK)
    assert [job.inputs["6.text"] for job in book.jobs] == ["a fox", "a cat", "snow", "snow"]
    assert [job.inputs["3.steps"] for job in book.jobs] == [12, 3, 12, 12]
    assert [job.batch_index for job in book.jobs] == [0, 1, 2, 3]
    assert [job.file_path for job in book.jobs] == [
        f"jobs/finished/image/winter_tales/page_{number:03}.png" for number in (1, 2, 3, 4)
    ]
    overrides = [job.metadata["overrides"] for job in book.jobs if job.metadata]
    assert overrides == [{"prompt": "a fox"}, {"prompt": "a cat", "steps": 3}, {}, {}]


def test_pages_may_be_films_with_a_workflow_of_their_own(tmp_path: Path) -> None:
    pages = [{"inputs": {"prompt": "a fox"}, "workflow": "painting"}, {"workflow": "film", "inputs": {"fps": 4.0}}]
    book = read(tmp_path, {"book_id": "mixed", "pages": pages})
    assert [(job.job_type, job.file_path) for job in book.jobs] == [
        ("T2I", "jobs/finished/image/mixed/page_001.png"),
        ("I2V", "jobs/finished/video/mixed/page_002.png"),
    ]


def test_the_limits_of_pages_are_those_of_books(tmp_path: Path) -> None:
    settings = Settings(retry_limit=9, books=Books(retry_limit=5, parallel_pages=False))
    book = read(tmp_path, WINTER, settings)
    assert {job.retry_limit for job in book.jobs} == {5}
    assert book.batch.is_serial
    assert not read(tmp_path, WINTER).batch.is_serial
    assert {job.retry_limit for job in read(tmp_path, WINTER).jobs} == {3}


def test_priorities_are_those_of_the_file_or_of_the_workspace(tmp_path: Path) -> None:
    assert {job.priority for job in read(tmp_path, WINTER | {"priority": 0}).jobs} == {0}
    assert {job.priority for job in read(tmp_path, WINTER, Settings(default_priority=77)).jobs} == {77}


def test_no_page_changes_the_template_or_another_page(tmp_path: Path) -> None:
    before = copy.deepcopy(PAINTING), WORKFLOWS["painting"].template.text
    book = read(tmp_path, WINTER)
    for job in book.jobs:
        assert job.template is WORKFLOWS["painting"].template
    first, second = book.jobs[2:]
    assert first.inputs is not second.inputs
    assert first.metadata is not None
    assert second.metadata is not None
    assert first.metadata["overrides"] is not second.metadata["overrides"]
    assert (PAINTING, WORKFLOWS["painting"].template.text) == before


@pytest.mark.parametrize(
    ("pages", "shared", "own"),
    [
        ([{"prompt": "a fox"}, {}, {}], {"6.text": LONG}, [{"6.text": "a fox"}, {}, {}]),
        ([{"seed": 1}, {"seed": 2}, {}], {"6.text": LONG}, [SEEDED[1], SEEDED[2], {}]),
        ([{"seed": 1}, {"seed": 1}, {}], {"6.text": LONG}, [SEEDED[1], SEEDED[1], {}]),
        ([{"seed": 1}, {"seed": 2}, {"seed": 2}], {"6.text": LONG, **SEEDED[2]}, [SEEDED[1], {}, {}]),
    ],
    ids=["one differs", "all differ", "one has none", "two are the same"],
)
def test_what_most_pages_have_is_in_their_workflow_and_what_differs_with_each(
    tmp_path: Path, pages: list[dict[str, Any]], shared: dict[str, Any], own: list[dict[str, Any]]
) -> None:
    content = {"workflow": "painting", "inputs": {"prompt": LONG}, "pages": [{"inputs": page} for page in pages]}
    book = read(tmp_path, content, Settings(job_limit_kb=100))
    assert [job.inputs for job in book.jobs] == own
    for job in book.jobs:
        assert job.template == Template.of(place(PAINTING, shared))
        assert book.batch.metadata["shared"] == {job.template.hash: shared}


# Ids.


@pytest.mark.parametrize(
    ("title", "slug"),
    [("Winter tales", "Winter_tales"), ("Ünder/../way", "Under_.._way"), ("日本", "book"), ("", "book")],
)
def test_without_an_id_it_is_the_title_and_eight_hex_digits(tmp_path: Path, title: str, slug: str) -> None:
    ids = {read(tmp_path, WINTER | {"book_id": None, "title": title}).batch.id for _ in range(5)}
    assert len(ids) == 5
    assert all(re.fullmatch(rf"{re.escape(slug)}_[0-9a-f]{{8}}", each) for each in ids)


@pytest.mark.parametrize("book_id", ["a", "winter-tales_2.1", "7", "x" * 100])
def test_an_id_that_is_given_is_taken_as_it_is(tmp_path: Path, book_id: str) -> None:
    assert read(tmp_path, WINTER | {"book_id": book_id}).batch.id == book_id


HOSTILE = [
    "",
    ".",
    "..",
    "../x",
    "a/b",
    "a\\b",
    ".hidden",
    "-rf",
    "a b",
    "ünder",
    "a\n",
    "a\x00b",
    "x" * 101,
    7,
    True,
    [],
]


@pytest.mark.parametrize("book_id", HOSTILE)
def test_an_id_that_is_no_name_for_a_folder_is_refused_with_its_line(tmp_path: Path, book_id: Any) -> None:
    text = f"title: Winter\nbook_id: {json.dumps(book_id)}\nworkflow: painting\npages: [{{inputs: {{prompt: a}}}}]\n"
    (words,) = complaints_of(tmp_path, text)
    assert words.startswith("2: book_id: ")
    assert words.endswith("write letters, digits, dots, dashes and underscores, such as winter_tales")


# What is wrong with the file.


def test_of_very_many_pages_that_are_none_the_first_is_named(tmp_path: Path) -> None:
    (words,) = complaints_of(tmp_path, {"workflow": "painting", "pages": [1] * 1_000})
    assert "pages.0: 1 cannot be used" in words


PAGES = "workflow: painting\npages:\n"
ONE = "pages: [{inputs: {prompt: a}}]\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", " it is empty: write title:, workflow: and pages:"),
        ("- a\n", " it is not a mapping"),
        ("title: x\nworkflow: painting\n", " pages: is missing: write a list of pages"),
        ("workflow: painting\npages: []\n", "2: pages: [] cannot be used"),
        ("workflow: painting\npages: {a: 1}\n", "2: pages: {'a': 1} cannot be used"),
        (f"{PAGES}  - inputs: []\n", "3: pages.0.inputs: [] cannot be used"),
        (f"{PAGES}  - inputs: {{prompt: a}}\n    wurkflow: x\n", "4: pages.0.wurkflow: there is no such key; did you"),
        (f"workflow: painting\ntitel: x\n{ONE}", "2: titel: there is no such key; did you mean title?"),
        (f"title: [x]\nworkflow: painting\n{ONE}", "1: title: ['x'] cannot be used"),
        (ONE, "1: workflow: is missing: write one for the book, or for each page"),
        ("workflow: nope\npages: [{}, {}]\n", "1: workflow: 'nope' is not in workflows.yaml"),
        (f"{PAGES}  - workflow: nope\n", "3: page 1: workflow: 'nope' is not in workflows.yaml"),
        (f"{PAGES}  - inputs:\n      prompt: a\n      hat: b\n", "5: page 1: inputs.hat: 'hat' has no place"),
        ("workflow: painting\ninputs:\n  steps: many\n  prompt: a\npages: [{}, {}]\n", "3: inputs.steps: 'many' does"),
        (f"{PAGES}  - inputs: {{steps: 1}}\n", "3: page 1: inputs.prompt: is missing: painting needs prompt"),
        ("workflow: painting\npages: [a: b\n", "3: it is not YAML: "),
        ("title: a\ntitle: b\n", "2: the key 'title' is there twice"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    assert complaints_of(tmp_path, text)[0].startswith(words)


def test_one_mistake_in_a_page_is_one_complaint(tmp_path: Path) -> None:
    assert len(complaints_of(tmp_path, f"{PAGES}  - inputs: {{prompt: a}}\n    wurkflow: x\n")) == 1


def test_every_page_that_is_wrong_is_named(tmp_path: Path) -> None:
    pages = [{"inputs": {"prompt": "a", "hat": 1}}, {"inputs": {"prompt": "b"}}, {"inputs": {"prompt": "c", "hat": 2}}]
    found = complaints_of(tmp_path, {"workflow": "painting", "pages": pages})
    assert [re.search(r"page \d", words)[0] for words in found] == ["page 1", "page 3"]  # type: ignore[index]


# A page made anew.


def page(tmp_path: Path, number: int, content: Mapping[str, Any] = WINTER) -> Any:
    """A page of a book as it stands in the database later."""
    book = read(tmp_path, content)
    job: NewJob = book.jobs[number - 1]
    kept = {"config_name": job.config_name, "job_type": job.job_type, "workflow_id": job.workflow_id}
    return SimpleNamespace(**kept, metadata=json.dumps(job.metadata), book=book.batch)


def again(job: Any, changes: Mapping[str, Any], seed: int | None = None) -> NewJob:
    return page_again(job, job.book, changes, seed, find, lambda *_: {}, 64)


def test_new_inputs_replace_those_of_the_page_and_of_the_book(tmp_path: Path) -> None:
    changed = again(page(tmp_path, 2), {"prompt": "a wolf"})
    assert changed.inputs["6.text"] == "a wolf"
    assert changed.inputs["3.steps"] == 3
    assert changed.metadata is not None
    assert changed.metadata["inputs"] == {"prompt": "a wolf", "steps": 3}
    assert changed.metadata["overrides"] == {"prompt": "a wolf", "steps": 3}
    assert changed.metadata["page"] == 2


def test_a_place_that_has_a_name_keeps_it(tmp_path: Path) -> None:
    changed = again(page(tmp_path, 1), {"6.text": "a wolf"})
    assert changed.inputs["6.text"] == "a wolf"
    assert changed.metadata is not None
    assert changed.metadata["overrides"] == {"prompt": "a wolf"}


def test_texts_from_the_command_line_become_what_the_place_takes(tmp_path: Path) -> None:
    assert again(page(tmp_path, 1), {"steps": "30"}).inputs["3.steps"] == 30


def test_a_new_seed_goes_to_every_seed(tmp_path: Path) -> None:
    changed = again(page(tmp_path, 1), {}, 4711)
    assert (changed.inputs["3.seed"], changed.inputs["4.noise_seed"]) == (4711, 4711)
    assert changed.inputs["6.text"] == "a fox"


def test_a_seed_that_is_given_wins_over_a_new_one(tmp_path: Path) -> None:
    changed = again(page(tmp_path, 1), {"3.seed": "5"}, 4711)
    assert (changed.inputs["3.seed"], changed.inputs["4.noise_seed"]) == (5, 4711)


def test_a_named_seed_that_is_given_wins_over_a_new_one(tmp_path: Path) -> None:
    changed = again(page(tmp_path, 1), {"seed": "5"}, 4711)
    assert (changed.inputs["3.seed"], changed.inputs["4.noise_seed"]) == (5, 5)


def test_a_new_seed_replaces_the_one_of_the_page(tmp_path: Path) -> None:
    changed = again(page(tmp_path, 1, WINTER | {"inputs": {"prompt": "snow", "seed": 5}}), {}, 4711)
    assert (changed.inputs["3.seed"], changed.inputs["4.noise_seed"]) == (4711, 4711)


@pytest.mark.parametrize("changes", [{}, {"3.seed": "4711"}], ids=["new seed", "one place of it"])
def test_a_required_seed_that_goes_to_two_places_can_be_changed(tmp_path: Path, changes: dict[str, str]) -> None:
    content = WINTER | {"workflow": "seeded", "inputs": {"prompt": "snow", "seed": 5}}
    changed = again(page(tmp_path, 3, content), changes, None if changes else 4711)
    assert changed.inputs["3.seed"] == 4711


def test_a_page_without_a_seed_says_so(tmp_path: Path) -> None:
    content = {"book_id": "grey", "workflow": "toneless", "pages": [{"inputs": {"color": 3}}]}
    with pytest.raises(BadPage, match=r"grey_page_001: its workflow has no seed to change: give new inputs with --set"):
        again(page(tmp_path, 1, content), {}, 4711)
    assert again(page(tmp_path, 1, content), {"color": "5"}, 4711).inputs["1.color"] == 5


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"hat": "red"}, "'hat' has no place in the workflow"), ({"steps": "many"}, "takes a whole number")],
)
def test_new_inputs_that_do_not_fit_are_refused(tmp_path: Path, changes: dict[str, str], words: str) -> None:
    with pytest.raises(BadPage) as caught:
        again(page(tmp_path, 1), changes)
    assert str(caught.value).startswith("winter_tales_page_001: ")
    assert words in str(caught.value)


def test_a_page_whose_workflow_is_gone_says_so(tmp_path: Path) -> None:
    job = page(tmp_path, 1)
    job.metadata = json.dumps(json.loads(job.metadata) | {"workflow": "gone"})
    with pytest.raises(BadPage, match=r"winter_tales_page_001: workflow 'gone' is not in workflows\.yaml"):
        again(job, {"prompt": "a"})


@pytest.mark.parametrize(
    "metadata",
    [
        *(None, "", "[]", "{", "{}"),
        pytest.param('{"inputs": [], "overrides": 7}'),
    ],
)
def test_a_page_that_someone_spoiled_by_hand_can_be_made_with_new_inputs(tmp_path: Path, metadata: str | None) -> None:
    job = page(tmp_path, 1)
    job.metadata = metadata
    assert again(job, {"prompt": "a wolf"}).inputs["6.text"] == "a wolf"


# What is drawn.

OPEN = {
    "book_id": "open",
    "workflow": "painting",
    "inputs": {"prompt": "a {red|blue|green|white|black} {fox|owl|hare|lynx} under {one|two|three|four} moons"},
    "pages": [{"inputs": {"steps": number}} for number in range(1, 13)],
}


def test_each_page_draws_for_itself_and_what_it_drew_is_recorded(tmp_path: Path) -> None:
    jobs = read(tmp_path, OPEN).jobs
    assert len({job.inputs["6.text"] for job in jobs}) > 3
    assert {(job.metadata or {})["drawn"]["written"]["prompt"] for job in jobs} == {OPEN["inputs"]["prompt"]}


def test_a_page_is_drawn_as_before_unless_it_gets_a_new_seed(tmp_path: Path) -> None:
    before = read(tmp_path, OPEN).jobs[4]
    kept = {"config_name": before.config_name, "job_type": before.job_type, "workflow_id": before.workflow_id}
    book = SimpleNamespace(metadata={"inputs": OPEN["inputs"]})
    job = SimpleNamespace(**kept, metadata=json.dumps(before.metadata), book=book)
    assert again(job, {"steps": 40}).inputs["6.text"] == before.inputs["6.text"]
    texts = {again(job, {}, seed).inputs["6.text"] for seed in range(40)}
    assert len(texts) > 5
    assert again(job, {}, 7).inputs == again(job, {}, 7).inputs
