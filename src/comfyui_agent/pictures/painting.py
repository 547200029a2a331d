"""Paintings for the simulator. The prompt chooses the colours, the seed the composition, the model the style, the
guidance the saturation. Each step adds a dot, and few steps leave noise."""

from __future__ import annotations

import colorsys
import hashlib
import math
import random
from dataclasses import dataclass

from PIL import Image, ImageChops, ImageDraw, ImageFilter, ImageFont

CANVAS = 192
CAPTION_FROM = 128
MOST_DOTS = 500

Colour = tuple[int, int, int]


@dataclass(frozen=True)
class Recipe:
    words: str = ""
    avoid: str = ""
    seed: int = 0
    steps: int = 20
    guidance: float = 7.0
    sampler: str = ""
    style: str = ""
    frame: int = 0


def paint(recipe: Recipe, width: int, height: int, finished: float = 1.0) -> Image.Image:
    """The painting at a size. `finished` below 1 gives the noisy picture of an earlier step."""
    scale = min(1.0, CANVAS / max(width, height))
    canvas = (max(1, round(width * scale)), max(1, round(height * scale)))
    picture = _scene(recipe, *canvas)
    noise_left = max(0.0, min(0.9, 1.0 - finished + 0.6 / max(1, recipe.steps) - 0.03))
    if noise_left > 0.01:
        picture = Image.blend(picture, _noise(recipe, *canvas), noise_left)
    if canvas != (width, height):
        picture = picture.resize((width, height), Image.Resampling.BICUBIC)
    if finished >= 1.0 and min(width, height) >= CAPTION_FROM:
        _caption(picture, recipe)
    return picture


def _scene(recipe: Recipe, width: int, height: int) -> Image.Image:
    words, style = _digest(recipe.words), _digest(recipe.style)
    hue = int.from_bytes(words[:2], "big") / 65536
    spread = 0.03 + 0.05 * words[2] / 255
    away = (_digest(recipe.avoid)[0] / 255 - 0.5) * 0.1 if recipe.avoid else 0.0
    saturation = 1.0 - 0.9 * math.exp(-max(0.0, recipe.guidance) / 9)
    dusk, light = 0.35 + 0.2 * style[1] / 255, 0.65 + 0.2 * style[2] / 255
    dice = random.Random(f"{recipe.seed}/{recipe.sampler}")
    picture = _sky(_colour(hue + away, saturation * 0.7, 0.95), _colour(hue + 0.12, saturation, dusk), width, height)
    drawing = ImageDraw.Draw(picture)
    _sun(drawing, dice, recipe.frame, _colour(hue + 0.5, saturation * 0.8, 1.0), width, height)
    accents = [_colour(hue + spread * n, saturation, light - 0.15 * n) for n in range(4)]
    (_hills, _towers, _bubbles)[style[0] % 3](drawing, dice, accents, width, height)
    for _ in range(min(recipe.steps, MOST_DOTS)):
        drawing.point((dice.uniform(0, width - 1), dice.uniform(0, height - 1)), fill=(255, 255, 255))
    return picture


def _sky(top: Colour, bottom: Colour, width: int, height: int) -> Image.Image:
    column = Image.new("RGB", (1, height))
    for y in range(height):
        share = y / max(1, height - 1)
        column.putpixel((0, y), tuple(round(a + (b - a) * share) for a, b in zip(top, bottom, strict=True)))
    return column.resize((width, height))


def _sun(
    drawing: ImageDraw.ImageDraw, dice: random.Random, frame: int, colour: Colour, width: int, height: int
) -> None:
    radius = max(1, min(width, height) * dice.uniform(0.08, 0.18))
    x = (dice.uniform(0.15, 0.85) * width + frame * width / 24) % max(1, width)
    y = dice.uniform(0.15, 0.4) * height
    drawing.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)


def _hills(drawing: ImageDraw.ImageDraw, dice: random.Random, colours: list[Colour], width: int, height: int) -> None:
    for layer, colour in enumerate(colours):
        level = height * (0.5 + 0.12 * layer)
        points: list[tuple[float, float]] = [(0.0, float(height))]
        points += [(width * n / 6, level - dice.uniform(0, 0.22) * height) for n in range(7)]
        points.append((float(width), float(height)))
        drawing.polygon(points, fill=colour)


def _towers(drawing: ImageDraw.ImageDraw, dice: random.Random, colours: list[Colour], width: int, height: int) -> None:
    for layer, colour in enumerate(colours):
        x = 0.0
        while x < width:
            broad = width * dice.uniform(0.06, 0.16)
            top = height * dice.uniform(0.3 + 0.1 * layer, 0.75 + 0.05 * layer)
            drawing.rectangle((x, top, x + broad * 0.8, height), fill=colour)
            x += broad


def _bubbles(drawing: ImageDraw.ImageDraw, dice: random.Random, colours: list[Colour], width: int, height: int) -> None:
    for n in range(22):
        radius = max(1.0, min(width, height) * dice.uniform(0.03, 0.16))
        x, y = dice.uniform(0, width), dice.uniform(0.3, 1.0) * height
        drawing.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colours[n % len(colours)])


def _noise(recipe: Recipe, width: int, height: int) -> Image.Image:
    dice = random.Random(recipe.seed)
    bands = [Image.frombytes("L", (width, height), dice.randbytes(width * height)) for _ in range(3)]
    return Image.merge("RGB", bands).filter(ImageFilter.BoxBlur(1))


def _caption(picture: Image.Image, recipe: Recipe) -> None:
    width, height = picture.size
    size = max(10, height // 22)
    words = " ".join(recipe.words.split())
    longest = max(8, int(width / (size * 0.58)) - 12)
    words = words if len(words) <= longest else words[: longest - 1] + "…"
    band = Image.new("RGB", (width, size * 2), (0, 0, 0))
    box = (0, height - size * 2, width, height)
    picture.paste(ImageChops.blend(picture.crop(box), band, 0.45), box)
    font = ImageFont.load_default(size=size)
    text = f"{words} · seed {recipe.seed}"
    ImageDraw.Draw(picture).text((size // 2, height - size * 1.6), text, fill=(255, 255, 255), font=font)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()


def _colour(hue: float, saturation: float, value: float) -> Colour:
    red, green, blue = colorsys.hsv_to_rgb(hue % 1.0, saturation, value)
    return round(red * 255), round(green * 255), round(blue * 255)
