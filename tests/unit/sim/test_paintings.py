"""Paintings follow from their recipe: the same one gives the same bytes, another one another picture."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from PIL import Image, ImageChops, ImageStat

from comfyui_agent.pictures.painting import Recipe, paint

RECIPE = Recipe(
    words="a lighthouse in fog", avoid="people", seed=42, steps=20, guidance=7.0, sampler="euler/normal", style="ink"
)
SIZES = [(16, 16), (64, 48), (512, 320)]


def difference(first: Image.Image, second: Image.Image) -> float:
    """How far two pictures are apart, 0 to 255."""
    return sum(ImageStat.Stat(ImageChops.difference(first, second)).mean) / 3


def roughness(picture: Image.Image) -> float:
    """How far neighbouring pixels are apart."""
    return difference(picture, ImageChops.offset(picture, 1, 0))


@pytest.mark.parametrize("size", SIZES)
def test_the_same_recipe_gives_the_same_bytes(size: tuple[int, int]) -> None:
    first, second = paint(RECIPE, *size), paint(replace(RECIPE), *size)
    assert first.size == size
    assert first.tobytes() == second.tobytes()


def test_each_setting_changes_the_picture() -> None:
    others = {
        "words": replace(RECIPE, words="a lighthouse in the sun"),
        "seed": replace(RECIPE, seed=43),
        "model": replace(RECIPE, style="oil"),
        "guidance": replace(RECIPE, guidance=7.5),
        "steps": replace(RECIPE, steps=21),
        "avoided words": replace(RECIPE, avoid="boats"),
        "sampler": replace(RECIPE, sampler="heun/karras"),
        "frame": replace(RECIPE, frame=1),
    }
    for size in SIZES:
        picture = paint(RECIPE, *size).tobytes()
        assert [name for name, other in others.items() if paint(other, *size).tobytes() == picture] == [], size


def test_a_sweep_of_one_setting_has_no_two_equal_pictures() -> None:
    sweeps = [
        [replace(RECIPE, words=f"a house number {n}") for n in range(60)],
        [replace(RECIPE, style=f"model_{n}.safetensors") for n in range(30)],
        [replace(RECIPE, guidance=n / 2) for n in range(50)],
        [replace(RECIPE, steps=n) for n in range(1, 60)],
        [replace(RECIPE, seed=n) for n in range(60)],
    ]
    for sweep in sweeps:
        pictures = [paint(recipe, 64, 64).tobytes() for recipe in sweep]
        assert len(set(pictures)) == len(sweep)


def test_fewer_steps_leave_more_noise() -> None:
    noise = [roughness(paint(replace(RECIPE, steps=steps), 96, 96)) for steps in (1, 4, 8, 20)]
    assert all(more > less for more, less in itertools.pairwise(noise))


def test_an_unfinished_picture_comes_closer_with_every_step() -> None:
    finished = paint(RECIPE, 96, 96)
    distances = [difference(paint(RECIPE, 96, 96, finished=share), finished) for share in (0.1, 0.5, 0.9)]
    assert all(farther > nearer for farther, nearer in itertools.pairwise(distances))


def test_guidance_makes_colours_stronger() -> None:
    def saturation(guidance: float) -> float:
        return ImageStat.Stat(paint(replace(RECIPE, guidance=guidance), 96, 96).convert("HSV")).mean[1]

    assert saturation(1) < saturation(7) < saturation(15)


@pytest.mark.parametrize("size", [(1, 1), (1, 500), (2048, 8)])
def test_any_size_can_be_painted(size: tuple[int, int]) -> None:
    assert paint(RECIPE, *size).size == size


@pytest.mark.parametrize("words", ["", "\ud800", "x" * 100_000, "日本語 🌊", "a\nb\0c"])
def test_any_words_can_be_painted(words: str) -> None:
    assert paint(replace(RECIPE, words=words), 160, 160).size == (160, 160)
