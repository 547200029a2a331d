"""What fits into video memory, and what has to leave it."""

from __future__ import annotations

import pytest

from comfyui_agent.sim.engine.card import BYTES_PER_PIXEL, GIB, MODEL_BYTES, OutOfMemoryError, VideoMemory

MEGAPIXEL = 1024 * 1024


def test_an_unused_device_is_free() -> None:
    memory = VideoMemory(24)
    assert memory.free == memory.total == 24 * GIB


def test_a_model_stays_loaded_and_a_picture_does_not() -> None:
    memory = VideoMemory(24)
    memory.reserve("ink", MEGAPIXEL)
    assert memory.free == memory.total - MODEL_BYTES - MEGAPIXEL * BYTES_PER_PIXEL
    memory.release()
    assert memory.loaded == ["ink"]
    assert memory.free == memory.total - MODEL_BYTES


def test_a_picture_that_fits_exactly_fits() -> None:
    memory = VideoMemory(8)
    most = (memory.total - MODEL_BYTES) // BYTES_PER_PIXEL
    memory.reserve("ink", most)
    with pytest.raises(OutOfMemoryError):
        memory.reserve("ink", most + 1)


def test_the_model_used_longest_ago_makes_room_for_a_new_one() -> None:
    memory = VideoMemory(9)
    memory.reserve("ink", 0)
    memory.reserve("oil", 0)
    memory.reserve("ink", 0)
    memory.reserve("pen", 0)
    assert memory.loaded == ["ink", "pen"]


def test_other_models_make_room_for_a_large_picture() -> None:
    memory = VideoMemory(12)
    for name in ("ink", "oil", "pen"):
        memory.reserve(name, 0)
    memory.reserve("pen", 4 * MEGAPIXEL)
    assert memory.loaded == ["pen"]


def test_a_small_device_renders_small_pictures() -> None:
    memory = VideoMemory(2)
    memory.reserve("ink", 512 * 512)
    with pytest.raises(OutOfMemoryError):
        memory.reserve("ink", 2 * MEGAPIXEL)


def test_running_out_says_how_much_was_wanted_and_leaves_the_device_empty() -> None:
    memory = VideoMemory(24)
    with pytest.raises(OutOfMemoryError, match=r"Requested +: 96.00 GiB\nDevice limit +: 24.00 GiB"):
        memory.reserve("ink", 64 * MEGAPIXEL)
    assert memory.free == memory.total


def test_the_error_bears_the_name_that_clients_look_for() -> None:
    assert f"{OutOfMemoryError.__module__}.{OutOfMemoryError.__qualname__}" == "torch.OutOfMemoryError"


def test_models_that_are_not_kept_leave() -> None:
    memory = VideoMemory(24)
    memory.reserve("ink", 0)
    memory.reserve("oil", 0)
    memory.keep_only({"ink", "pen"})
    assert memory.loaded == ["ink"]
    memory.keep_only(())
    assert memory.free == memory.total


def test_memory_that_something_holds_is_missing_until_it_lets_go() -> None:
    memory = VideoMemory(8, held=3.5)
    assert memory.free == 4.5 * GIB
    with pytest.raises(OutOfMemoryError, match=r"Free \(according to CUDA\): 0.50 GiB"):
        memory.reserve("ink", MEGAPIXEL)
    memory.let_go()
    assert memory.free == memory.total == 8 * GIB
    memory.reserve("ink", MEGAPIXEL)


def test_what_is_held_is_not_given_back_by_unloading_models_or_by_running_out() -> None:
    memory = VideoMemory(8, held=3.5)
    memory.reserve("ink", 0)
    memory.keep_only(())
    assert memory.free == 4.5 * GIB
    with pytest.raises(OutOfMemoryError):
        memory.reserve("ink", 2 * MEGAPIXEL)
    assert memory.free == 4.5 * GIB


def test_more_can_be_held_than_there_is_and_then_nothing_fits() -> None:
    memory = VideoMemory(8, held=20)
    assert memory.free == 0
    with pytest.raises(OutOfMemoryError):
        memory.reserve("ink", 0)
