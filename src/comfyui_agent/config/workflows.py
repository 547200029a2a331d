"""The workflows of a workspace: `workflows.yaml` and its templates, read again when they change; their places."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BeforeValidator, Field

from comfyui_agent.config.converted_workflows import ConvertedWorkflows, Converter, ask_nobody
from comfyui_agent.config.text_files import WorkspaceTexts
from comfyui_agent.config.validation import Complaints, Document, Section, check, dotted
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.binding import Place, Places, Recipe, bind
from comfyui_agent.domain.drawing import Drawn, NoFiles, TextFiles, draw, new_seed
from comfyui_agent.domain.jobs import Template
from comfyui_agent.domain.needs import Offered, choices_among
from comfyui_agent.domain.prompts import Graph, NoSuchPlace
from comfyui_agent.domain.texts import suggest
from comfyui_agent.workflows.errors import NoDefinitions, NoWorkflowFound, WorkflowError
from comfyui_agent.workflows.workflow_file import FoundWorkflow, find_workflow

LARGEST_TEMPLATE = 32 * 1024 * 1024
LONGEST_ID = 200
WORKFLOW_ID = re.compile(r"[\w][\w .-]*")
ENDINGS = (".json", ".png", ".webp", ".jpg", ".jpeg", ".mp4", ".webm", ".flac")
"""Of the files that are workflows in the folder of workflows. Where several have one name, the first counts."""

Stamp = tuple[int, int, int]
Texts = Annotated[tuple[str, ...], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]


class NoWorkflow(Exception):
    """A workflow that cannot be used. The message says what is wrong and what to do."""


class NotConvertedYet(NoWorkflow, OSError):
    """A workflow in UI format that was never converted, and no server answers. Waiting may mend it: an OSError, as
    what a machine lacks for a while."""


class _Entry(Section):
    template_path: Annotated[str, Field(min_length=1)] = Field(
        description="the path of a template, such as workflows/portrait.json"
    )
    required_inputs: tuple[str, ...] = Field(default=(), description='a list of names, such as ["prompt", "seed"]')
    description: str = Field(default="", description="a text in quotes")
    defaults: dict[str, Any] = Field(default={}, description="a mapping of names to values")
    inputs: dict[str, Texts] = Field(default={}, description='a mapping of names to places, such as prompt: "6.text"')
    purpose: Literal["", "upscale"] = Field(default="", description="upscale, if it makes a larger picture of one")
    reuse: Literal["same"] | None = Field(default=None, description="same, to take recorded results of the same jobs")


@dataclass(frozen=True)
class Workflow:
    recipe: Recipe
    template: Template
    graph: Graph
    places: Places
    texts: TextFiles = field(default=NoFiles(), compare=False)
    """The wildcards and prompts of its workspace."""

    def bound(
        self, given: Mapping[str, Any], *, seed: int | str | None = None, recipe: Recipe | None = None
    ) -> tuple[dict[str, Any], Drawn]:
        """Values by place: the given ones, with what they leave open drawn by a seed, and defaults for the others.

        Unbindable names everything that is wrong. `recipe`: another one than its own.
        """
        drawn = draw(self.places, recipe or self.recipe, given, self.texts, new_seed() if seed is None else seed)
        return bind(self.places, drawn.recipe, drawn.values), drawn


class Workflows:
    """Finds workflows by their id: in `workflows.yaml`, else as a file `<id>` in the folder of workflows.

    Those in UI format are converted once, by `convert`.
    """

    def __init__(self, workspace: Workspace, convert: Converter = ask_nobody) -> None:
        self._workspace = workspace
        self._converted = ConvertedWorkflows(workspace.converted_workflows, convert)
        self.recipes: dict[str, Recipe] = {}
        self._stamp: Stamp | None = None
        self._templates: dict[Path, tuple[Stamp, Workflow]] = {}
        self._found: dict[str, Workflow | NoWorkflow] = {}
        self.texts = WorkspaceTexts(workspace.root)

    def refresh(self) -> None:
        """Read `workflows.yaml` if it changed. If it is wrong, raises Complaints and keeps the recipes known before."""
        self._found.clear()
        stamp = stamp_of(self._workspace.recipes)
        if stamp == self._stamp:
            return
        self.recipes = read_recipes(self._workspace.recipes) if stamp else {}
        self._stamp = stamp

    def find(self, workflow_id: str) -> Workflow:
        """A workflow by its id. NoWorkflow if it is unknown or its template cannot be used."""
        found = self._found.get(workflow_id)
        if found is None:
            recipe = self.recipes.get(workflow_id) or self._recipe_of_file(workflow_id)
            try:
                found = self._load(recipe)
            except NoWorkflow as error:
                found = error
            self._found[workflow_id] = found
        if isinstance(found, NoWorkflow):
            raise found.with_traceback(None)
        return found

    def _recipe_of_file(self, workflow_id: str) -> Recipe:
        if WORKFLOW_ID.fullmatch(workflow_id) and len(workflow_id) <= LONGEST_ID:
            plain = self._workspace.workflow(workflow_id)
            for ending in ENDINGS:
                if stamp_of(path := plain.with_name(f"{workflow_id}{ending}")) is not None:
                    return Recipe(workflow_id, str(path))
        name = workflow_id[:LONGEST_ID]
        raise NoWorkflow(f"{name!r} is not in {self._workspace.recipes.name}; {suggest(name, self.known())}")

    def known(self) -> list[str]:
        """All ids: those of `workflows.yaml`, then the files in the folder of workflows."""
        folder = self._workspace.workflow("any").parent
        templates = sorted(path.stem for path in folder.glob("*.*") if path.suffix in ENDINGS)
        return list(dict.fromkeys([*self.recipes, *templates]))

    def named(self, name: str, base: Path) -> Workflow:
        """A workflow by its id, or a template by its path relative to `base`. NoWorkflow as in `find`."""
        path = Path(os.path.abspath(base / Path(name).expanduser()))
        if name not in self.recipes and (name.lower().endswith(".json") or path.is_file()):
            if not path.is_file():
                raise NoWorkflow(f"there is no file {path}: name a template, or a workflow of this workspace")
            return self.at(path)
        return self.find(name)

    def at(self, path: Path) -> Workflow:
        """The workflow of a file, called as it. NoWorkflow if it cannot be used."""
        return self._load(Recipe(path.stem, str(path.absolute())))

    def _load(self, recipe: Recipe) -> Workflow:
        path = self._workspace.root / recipe.template_path
        stamp = stamp_of(path)
        if stamp is None:
            raise NoWorkflow(f"its template {recipe.template_path} is not there: export one, Workflow → Export (API)")
        kept = self._templates.get(path)
        if kept is None or kept[0] != stamp:
            try:
                graph = read_template(path, self._converted.graph_of)
                kept = stamp, Workflow(recipe, Template.of(graph), graph, Places(graph), self.texts)
            except RecursionError:
                raise NoWorkflow(f"{path} is nested too deep for a workflow") from None
            self._templates[path] = kept
        found = kept[1]
        return found if found.recipe == recipe else replace(found, recipe=recipe)


def stamp_of(path: Path) -> Stamp | None:
    """A value that changes with the file. None if there is no file."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def read_recipes(path: Path) -> dict[str, Recipe]:
    """The entries of a `workflows.yaml`. Complaints if one is wrong."""
    document = Document(path, "workflow ids with their entries below them")
    found = {}
    for workflow_id, tree in document.tree.items():

        def where(inner: tuple[Any, ...], outer: str = workflow_id) -> str:
            return f"{document.where((outer, *inner))}: {dotted((outer,))}"

        if not isinstance(tree, dict):
            raise Complaints.about(where(()), "its entry is missing: write template_path: below it")
        entry = check(_Entry, {key: value for key, value in tree.items() if value is not None}, where)
        found[workflow_id] = Recipe(workflow_id, **entry.model_dump())
    return found


def read_template(path: Path, convert: Callable[[Mapping[str, Any]], Graph] = ask_nobody) -> Graph:
    """The graph of a template: a JSON file, or a picture or film that carries one. `convert` is for the UI format.

    NoWorkflow if there is none, NotConvertedYet if no server answers for one.
    """
    found = read_workflow_file(path)
    try:
        return convert(found.document) if found.is_editor_format else found.document
    except NoDefinitions as error:
        raise NotConvertedYet(f"{path}: {error}") from None
    except WorkflowError as error:
        raise NoWorkflow(f"{path} is refused: {error}") from None


def read_workflow_file(path: Path, largest: int = LARGEST_TEMPLATE) -> FoundWorkflow:
    """What a file carries. NoWorkflow if that is no workflow."""
    try:
        if path.stat().st_size > largest:
            raise NoWorkflow(f"{path} is too large for a workflow")
        return find_workflow(path.read_bytes())
    except (OSError, NoWorkflowFound) as error:
        raise NoWorkflow(f"{path} cannot be read: {error}") from None


def describe(workflow: Workflow, offers: Sequence[Offered] = ()) -> dict[str, Any]:
    """The inputs of a workflow as JSON, with the choices that servers offer."""
    recipe, described = workflow.recipe, []
    for place in open_places(workflow):
        facts = asdict(place)
        del facts["is_link"]
        described.append(facts | {"names": names_of(workflow, place)})
    return {
        "workflow_id": recipe.workflow_id,
        "template_path": recipe.template_path,
        "required_inputs": list(recipe.required_inputs),
        "defaults": dict(recipe.defaults),
        "placeholders": list(workflow.places.placeholders),
        "inputs": _usual_as_json(workflow, offers),
        "places": described,
    }


def usual_classes(workflow: Workflow) -> set[str]:
    """The classes of the nodes that have the usual inputs, or those of the recipe."""
    named = {*workflow.places.usual_names, *workflow.recipe.names}
    return {workflow.places.all[place].class_type for place in named if place in workflow.places.all}


def _usual_as_json(workflow: Workflow, offers: Sequence[Offered]) -> list[dict[str, Any]]:
    recipe, found = workflow.recipe, []
    named = {places: name for name, places in [*workflow.places.usual.items(), *recipe.inputs.items()]}
    for places, name in named.items():
        place = workflow.places.all.get(places[0]) if places else None
        if place is not None:
            choices = choices_among(offers, place.class_type, place.name) or None
            value = recipe.defaults.get(name, place.value)
            found.append({"name": name, "places": list(places), "value": value, "choices": choices})
    return found


def open_places(workflow: Workflow) -> list[Place]:
    """The places that are not connected to a node. Those of the usual inputs come first."""
    usual = dict.fromkeys(place for places in workflow.places.usual.values() for place in places)
    others = [place.place for place in workflow.places.all.values() if not place.is_link]
    return [workflow.places.all[place] for place in dict.fromkeys([*usual, *others])]


def entry_of(workflow: Workflow) -> str:
    """An entry for `workflows.yaml` that names the usual inputs of a workflow."""
    places = {name: list(found) if len(found) > 1 else found[0] for name, found in workflow.places.usual.items()}
    entry: dict[str, Any] = {"template_path": workflow.recipe.template_path}
    entry |= {"required_inputs": ["prompt"]} if "prompt" in places else {}
    entry |= {"inputs": places} if places else {}
    return yaml.safe_dump({workflow.recipe.workflow_id: entry}, sort_keys=False, allow_unicode=True, width=1000)


def names_of(workflow: Workflow, place: Place) -> list[str]:
    """The names by which a job can set this place. Those of the recipe come first."""
    own = [name for name, places in workflow.recipe.inputs.items() if place.place in places]
    own += [name for name, places in workflow.places.placeholders.items() if place.place in places]
    required = any(name in workflow.recipe.required_inputs for name in own)
    usual = workflow.places.usual_names.get(place.place, ())
    for name in (*usual, place.name, place.title.lower().replace(" ", "_")):
        try:
            is_new = name and name not in own and not required
            if is_new and place.place in (workflow.places.known(name, workflow.recipe) or ()):
                own.append(name)
        except NoSuchPlace:
            continue
    return own
