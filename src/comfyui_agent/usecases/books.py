"""Books: read and checked first, then queued as one batch; and single pages rendered again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from comfyui_agent.batches import books
from comfyui_agent.batches.books import BookFile, SaidBook
from comfyui_agent.batches.regeneration import BadPage, NoSuchPage, NotRegenerated, PageUnderWay, regenerate
from comfyui_agent.config.workflows import Workflow
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.batches import Batch, BatchStatus
from comfyui_agent.domain.events import EventName
from comfyui_agent.domain.texts import counted, listed
from comfyui_agent.store import operations as ops
from comfyui_agent.store.store import Store
from comfyui_agent.usecases.actor import Actor
from comfyui_agent.usecases.batches import queue_members
from comfyui_agent.usecases.errors import NameTaken, NotFound, NotPossible
from comfyui_agent.usecases.intake import Intake


@dataclass(frozen=True)
class RequestedBook:
    """A book that is in no file."""

    said: BookFile

    def where(self, path: tuple[Any, ...]) -> str:  # noqa: ARG002 - a request has no lines
        return ""


async def read_book(intake: Intake, actor: Actor, text: SaidBook, folder: Path | None = None) -> books.Book:
    """Check every page of a book. Nothing is queued. With a `folder`, templates may be named by paths below it."""
    actor.check_priority(text.said.priority)
    async with intake.reading() as admission:
        workflows = admission.workflows

        def find(name: str) -> Workflow:
            return workflows.find(name) if folder is None else workflows.named(name, folder)

        return await intake.threads.run(books.read_book, text, intake.workspace.settings, find, intake.keep)


async def queue_book(
    store: Store, workspace: Workspace, actor: Actor, book: books.Book, *, external_id: str | None = None
) -> Batch:
    """Queue every page of a book that was read."""
    book_id = book.batch.id
    await actor.check_external_id(store, external_id)
    known = await store.run(ops.find_batch, book_id)
    if known is not None and known.status is not BatchStatus.PENDING:  # else a dead process may have left it
        message = f"there is a book {book_id} already"
        line = f"{message}: give another book_id, or e3 book regenerate"
        raise NameTaken(message, "Give another book_id, or regenerate its pages.", line=line)
    new = replace(book.batch, external_id=external_id)
    batch = await queue_members(store, workspace, actor, new, book.jobs, len(book.jobs))
    await actor.audit(store, EventName.AUDIT_BOOK_CREATE, batch_id=book_id, message=counted(len(book.jobs), "page"))
    return batch


async def regenerate_pages(
    store: Store,
    intake: Intake,
    actor: Actor,
    book: Batch,
    pages: Sequence[int] | None = None,
    changes: Mapping[str, Any] | None = None,
    *,
    new_seed: bool = False,
    only_failed: bool = False,
) -> list[int]:
    """Render pages of a book again; their numbers. Without `pages`, those that need attention."""
    actor.check_owner(book)
    root, limit_kb = intake.workspace.root, intake.workspace.settings.job_limit_kb
    try:
        async with actor.room(book.failed), intake.reading() as admission:
            done = await regenerate(
                store,
                lambda name: admission.workflows.named(name, root),  # an id, or the path of a template
                intake.keep,
                book,
                pages,
                changes or {},
                new_seed,
                limit_kb=limit_kb,
                only_failed=only_failed,
            )
    except NoSuchPage as error:
        raise NotFound(error.message, f"{error.remedy.capitalize()}: name one of them.", line=str(error)) from None
    except PageUnderWay as error:
        remedy = "Wait until it has ended, or cancel it first."
        raise NotPossible(error.message, remedy, line=str(error)) from None
    except NotRegenerated as error:
        remedy = f"{error.remedy.replace(' with --page N', '').capitalize()}."
        raise NotPossible(error.message, remedy, line=str(error)) from None
    except BadPage as error:
        raise NotPossible(str(error).replace(" with --set", ""), line=str(error)) from None
    if done:
        message = f"page{'s' if len(done) > 1 else ''} {listed([str(page) for page in done])}"
        await actor.audit(store, EventName.AUDIT_BOOK_REGENERATE, batch_id=book.id, message=message)
    return done
