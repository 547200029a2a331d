"""Names of saved files: prefix, counter, placeholders, and the folder that none of them leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from comfyui_agent.sim.engine.behaviours.saving import save_place


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_the_first_file_is_number_one_and_the_next_ones_count_on(tmp_path: Path) -> None:
    place = save_place(tmp_path, "cat")
    assert [place.next_path("png").name for _ in range(3)] == ["cat_00001_.png", "cat_00002_.png", "cat_00003_.png"]


def test_the_counter_follows_the_highest_number_there(tmp_path: Path) -> None:
    touch(tmp_path, "cat_00002_.png", "cat_00007_.webm", "cat_x_.png", "catalogue_00050_.png", "cat_00009")
    assert save_place(tmp_path, "cat").next_path("png").name == "cat_00010_.png"


def test_a_number_past_five_digits_is_written_in_full(tmp_path: Path) -> None:
    touch(tmp_path, "cat_99999_.png")
    assert save_place(tmp_path, "cat").next_path("png").name == "cat_100000_.png"


def test_a_number_is_used_again_after_its_file_is_deleted(tmp_path: Path) -> None:
    touch(tmp_path, "cat_00001_.png")
    (tmp_path / "cat_00001_.png").unlink()
    assert save_place(tmp_path, "cat").next_path("png").name == "cat_00001_.png"


def test_folders_in_a_prefix_are_made_and_count_for_themselves(tmp_path: Path) -> None:
    touch(tmp_path, "cat_00005_.png")
    place = save_place(tmp_path, "pets/small/cat")
    assert (place.folder, place.subfolder) == (tmp_path / "pets" / "small", "pets/small")
    assert place.folder.is_dir()
    assert place.next_path("png").name == "cat_00001_.png"


def test_the_server_fills_in_size_and_date(tmp_path: Path) -> None:
    name = save_place(tmp_path, "%width%x%height%_%year%-%month%-%day%_%hour%%minute%%second%", 640, 480).stem
    size, date, clock = name.split("_")
    assert size == "640x480"
    assert [len(part) for part in date.split("-")] == [4, 2, 2]
    assert len(clock) == 6
    assert f"{date}{clock}".replace("-", "").isdigit()


def test_placeholders_of_the_editor_stay_as_they_are(tmp_path: Path) -> None:
    assert save_place(tmp_path, "%date:yyyy%_%KSampler.seed%").stem == "%date:yyyy%_%KSampler.seed%"


def test_the_number_in_a_batch_is_filled_in_per_file(tmp_path: Path) -> None:
    place = save_place(tmp_path, "cat_%batch_num%")
    assert [place.next_path("png", number).name for number in range(2)] == ["cat_0_00001_.png", "cat_1_00002_.png"]


@pytest.mark.parametrize("prefix", ["../cat", "/etc/cat", "pets/../../cat"])
def test_no_prefix_leaves_the_folder(tmp_path: Path, prefix: str) -> None:
    root = tmp_path / "output"
    with pytest.raises(Exception, match="Saving image outside the output folder is not allowed"):
        save_place(root, prefix)
    assert not root.exists()


def test_a_prefix_that_comes_back_in_is_fine(tmp_path: Path) -> None:
    assert save_place(tmp_path, "pets/../cat").folder == tmp_path
