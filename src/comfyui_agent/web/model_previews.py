"""Small pictures of model files, fetched from the servers when someone looks at them."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from comfyui_agent.access.limits import Turns
from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.errors import ComfyError, ServerLost
from comfyui_agent.comfy.limits import Limits
from comfyui_agent.comfy.model_files import ModelFile
from comfyui_agent.pictures.grid_sources import look_at
from comfyui_agent.pictures.thumbnails import NoThumbnail
from comfyui_agent.pools import FILES
from comfyui_agent.web.thumbnail_cache import ThumbnailCache

WIDTH = 160
REMEMBERED_SECONDS = 60.0
"""A listing, a model without a picture and a server that does not answer are not asked for again for so long."""
MOST_REMEMBERED = 10_000
DAY = 86_400
"""A thumbnail is made anew after it: a picture may be replaced while its model stays."""
LIMITS = Limits(connect_seconds=2.0, answer_seconds=4.0, retries=0)


class ModelPreviews:
    """What the first server has that offers a model. Each server answers one question at a time."""

    def __init__(self, urls: Callable[[], Sequence[str]], thumbnails: ThumbnailCache) -> None:
        self._urls = urls
        self._thumbnails = thumbnails
        self._turns = Turns(at_once=1)
        self._remembered: dict[tuple[str, ...], tuple[float, Any]] = {}

    async def get(self, folder: str, name: str) -> Path | None:
        """The thumbnail of a model, as WebP. None if no server has a picture that can be shown."""
        for url in self._urls():
            async with self._turns.turn(url):
                found = await self._at(url, folder, name)
            if found is not None:
                return found
        return None

    async def _at(self, url: str, folder: str, name: str) -> Path | None:
        if self._known(url) or self._known(url, folder, name):
            return None
        try:
            async with ComfyClient(url, limits=LIMITS, listen=False) as client:
                listing: Mapping[str, ModelFile] | None = self._known(url, folder)
                if listing is None:
                    self._remember({}, url, folder)  # until it is there
                    self._remember(listing := await client.model_files(folder), url, folder)
                self._remember(True, url, folder, name)  # until there is one
                found = await self._thumbnail(client, folder, name, listing[name]) if name in listing else None
        except (ServerLost, ValueError):  # silent, or no address at all
            self._remember(True, url)
            return None
        except ComfyError:
            return None
        if found is not None:
            self._remember(None, url, folder, name)
        return found

    async def _thumbnail(self, client: ComfyClient, folder: str, name: str, file: ModelFile) -> Path | None:
        source = Path(str(client.address), folder, name)
        version = f"{file} {time.time() // DAY}"
        small = await self._thumbnails.find(source, version, WIDTH)
        if small is None:
            data = await client.model_preview(folder, name, file.folder_number)
            small = await self._made(data, source, version) if data is not None else None
        return small

    async def _made(self, data: bytes, source: Path, version: str) -> Path | None:
        with tempfile.TemporaryDirectory(prefix="e3-") as folder:
            picture = Path(folder, "preview.webp")
            await FILES.run(picture.write_bytes, data)
            if not (await FILES.run(look_at, picture)).is_picture:
                return None
            try:
                return await self._thumbnails.get(source, version, WIDTH, lambda: picture)
            except (NoThumbnail, OSError):
                return None

    def _known(self, *key: str) -> Any:
        until, found = self._remembered.get(key, (0.0, None))
        return found if time.monotonic() < until else None

    def _remember(self, found: Any, *key: str) -> None:
        if len(self._remembered) >= MOST_REMEMBERED:
            self._remembered.clear()
        self._remembered[key] = time.monotonic() + REMEMBERED_SECONDS, found
