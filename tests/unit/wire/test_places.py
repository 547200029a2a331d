"""Which files clients may name, and where they lie."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from comfyui_agent.wire.places import FilePlace, names_to_try, place_to_read, place_to_write, split_kind

ROOTS = {kind: Path(f"/{kind}").absolute() for kind in ("output", "input", "temp")}


@pytest.mark.parametrize(
    ("name", "bare", "kind"),
    [
        ("cat.png [temp]", "cat.png", "temp"),
        ("cat.png", "cat.png", None),
        ("cat.png [nowhere]", "cat.png [nowhere]", None),
    ],
)
def test_a_file_name_may_say_which_folder_it_means(name: str, bare: str, kind: str | None) -> None:
    assert split_kind(name) == (bare, kind)


@pytest.mark.parametrize(
    ("filename", "kind", "subfolder", "place"),
    [
        ("a.png", "output", None, FilePlace("output", "", "a.png")),
        ("a.png [input]", "output", "", FilePlace("input", "", "a.png")),
        ("x/a.png", "temp", "deep/./er", FilePlace("temp", "deep/er", "a.png")),
        ("a.png", "input", str(ROOTS["input"] / "deep"), FilePlace("input", "deep", "a.png")),
        ("a..png", "input", "", 400),
        ("", "input", "", 400),
        ("a.png", "elsewhere", "", 400),
        ("a.png", "input", "deep/../..", 403),
        ("a.png", "input", "/etc", 403),
    ],
)
def test_a_place_to_read_is_found_or_refused(
    filename: str, kind: str, subfolder: str | None, place: FilePlace | int
) -> None:
    assert place_to_read(ROOTS, filename, kind, subfolder) == place


@pytest.mark.parametrize(
    ("filename", "subfolder", "path"),
    [
        ("a.png", "", "a.png"),
        ("a.png", "deep/../er", "er/a.png"),
        ("deep/a.png", "er", "er/deep/a.png"),
        ("input/a.png", "..", "a.png"),
        ("../a.png", "", None),
        ("a.png", "..", None),
        ("/etc/a.png", "", None),
    ],
)
def test_an_upload_stays_in_its_folder(filename: str, subfolder: str, path: str | None) -> None:
    place = place_to_write(ROOTS, filename, "input", subfolder)
    written = place and (ROOTS["input"] / place.subfolder / place.name).resolve()
    assert written == (path and ROOTS["input"] / path)


def test_what_was_uploaded_is_read_by_the_same_path() -> None:
    written = place_to_write(ROOTS, "er/a.png", "input", "deep")
    read = place_to_read(ROOTS, "a.png", "input", "deep/er")
    assert isinstance(read, FilePlace)
    assert (written and written.path) == read.path == "deep/er/a.png"


def test_names_are_counted_before_the_extension() -> None:
    assert list(islice(names_to_try("a.b.png"), 3)) == ["a.b.png", "a.b (1).png", "a.b (2).png"]
