"""Results that need not be rendered: a job with `reuse: same` gets those of another job that was made of the same."""

from __future__ import annotations

import hashlib
import logging
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from comfyui_agent.clock import Clock
from comfyui_agent.comfy.content import HEAD, recognise
from comfyui_agent.comfy.downloads import MARK, StagedFile
from comfyui_agent.comfy.errors import ComfyError
from comfyui_agent.comfy.results import ResultFile
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.fingerprint import fingerprint_of
from comfyui_agent.domain.jobs import JobId
from comfyui_agent.domain.prompts import Graph, place
from comfyui_agent.engine.recorder import Recorder
from comfyui_agent.engine.result_names import stem_of
from comfyui_agent.engine.server_inputs import Unfit, uploads_of
from comfyui_agent.files.connect import open_files
from comfyui_agent.fleet.server import FleetServer
from comfyui_agent.pools import OBJECTS
from comfyui_agent.store import operations as ops
from comfyui_agent.store.operation import OperationRunner
from comfyui_agent.store.records import Leased
from comfyui_agent.store.reuse import RecordedResult

log = logging.getLogger(__name__)

REMEMBERED_SECONDS = 10.0
CHUNK = 1024 * 1024


class FitsAuto(Protocol):
    async def fit(self, graph: Graph, pictures: str | None, server: FleetServer) -> Graph: ...


@dataclass(frozen=True)
class ReusedResult:
    """Copies of a recorded result, checked against its digests, and the job that was rendered for it."""

    origin: JobId
    files: list[StagedFile]


@dataclass
class Reuse:
    """Finds recorded results. What decides a result is asked of the server that would render it."""

    store: OperationRunner
    workspace: Workspace
    recorder: Recorder
    inputs: FitsAuto
    clock: Clock
    worker: str
    _known: dict[str, tuple[float, str, Mapping[str, str]]] = field(default_factory=dict, init=False)

    async def find(self, leased: Leased, graph: Graph, server: FleetServer) -> ReusedResult | None:
        """The result that a job may be given instead of a run. A job that has a result wants another one."""
        if leased.reuse is None or leased.take is not None:
            return None
        fingerprint = await self._fingerprint(leased, graph, server)
        if fingerprint is None:
            return None
        await self.recorder.write(ops.note_fingerprint, leased.lease, fingerprint)
        recorded = await self.store.run(ops.find_same_result, fingerprint, leased.lease.job_id)
        return None if recorded is None else await OBJECTS.run(self._copy, leased, recorded)

    async def _fingerprint(self, leased: Leased, graph: Graph, server: FleetServer) -> str | None:
        kept = uploads_of(leased.pictures)
        try:
            chosen = await self.inputs.fit(place(graph, kept), None, server)
            version, models = await self._facts(server)
        except (ComfyError, Unfit) as error:
            log.info("%s: what its result depends on is not known: %s", leased.config_name, error.message)
            return None
        return fingerprint_of(chosen, kept, models, version, leased.output_node)

    async def _facts(self, server: FleetServer) -> tuple[str, Mapping[str, str]]:
        known = self._known.get(server.name)
        if known is None or self.clock.now() - known[0] > REMEMBERED_SECONDS:
            stats, models = await server.client.system_stats(), await server.client.model_facts()
            known = self._known[server.name] = self.clock.now(), f"{stats.version} {stats.pytorch}", models
        return known[1:]

    def _copy(self, leased: Leased, recorded: RecordedResult) -> ReusedResult | None:
        """Copies beside the place of the new result. None if a file is gone or has other bytes than it had."""
        found = ReusedResult(recorded.origin, [])
        try:
            folder = stem_of(leased, self.workspace).parent
            for path, sha256 in recorded.files:
                source = open_files(self.workspace.results, path).local(path)
                target = open_files(self.workspace.results, path).staging(folder)
                target.mkdir(parents=True, exist_ok=True)
                found.files.append(_copied(source, target / f".{self.worker}-{uuid.uuid4().hex}{MARK}", sha256))
        except (OSError, ValueError) as error:
            log.info("%s: the result of job %s cannot be reused: %s", leased.config_name, recorded.origin, error)
            for file in found.files:
                file.discard()
            return None
        return found


def _copied(source: Path, target: Path, sha256: str) -> StagedFile:
    """A copy on disk. ValueError if the bytes are not those of the digest."""
    digest, head, size = hashlib.sha256(), b"", 0
    try:
        with source.open("rb") as read, target.open("xb") as written:
            while chunk := read.read(CHUNK):
                head, size = head or chunk[:HEAD], size + len(chunk)
                digest.update(chunk)
                written.write(chunk)
            written.flush()
            os.fsync(written.fileno())
        if digest.hexdigest() != sha256:
            raise ValueError(f"{source.name} has other bytes than it had")
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return StagedFile(ResultFile("", source.name, "", "output"), target, recognise(head, source.name), size, sha256)
