"""Every setting, with its default. The environment overrides it: `E3_COMFYUI__API_BASE_URL` and the like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

PREFIX = "E3_"
NOT_SETTINGS = frozenset({"E3_CONFIG", "E3_COMFYUI_URL", "E3_COMFYUI_DIR", "E3_COMFYUI_PYTHON"})


class SettingsError(Exception):
    """A setting that cannot be used: which one, and what would be right."""


def _listed(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


Seconds = Annotated[float, Field(gt=0, le=7 * 24 * 3600)]
Backoff = Annotated[tuple[Annotated[float, Field(ge=0, le=24 * 3600)], ...], BeforeValidator(_listed)]
Urls = Annotated[tuple[str, ...], BeforeValidator(_listed)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Paths(_Section):
    """Folders and files, relative to the workspace."""

    jobs_finished: str = "jobs/finished"
    database: str = "database/comfyui_agent.db"
    workflows: str = "workflows"


class Comfy(_Section):
    """The ComfyUI servers. `servers` wins over `api_base_url`."""

    api_base_url: str = "http://127.0.0.1:8188"
    servers: Urls = ()
    timeout_seconds: Seconds = 300.0
    stall_seconds: Seconds = 120.0
    failover_seconds: Seconds = 60.0

    @property
    def urls(self) -> tuple[str, ...]:
        return self.servers or (self.api_base_url,)


class Database(_Section):
    url: str = ""


class Settings(_Section):
    """How E3 works."""

    retry_limit: Annotated[int, Field(ge=0, le=1000)] = 2
    poll_interval_ms: Annotated[int, Field(ge=10, le=60_000)] = 1000
    retry_backoff_seconds: Backoff = (15.0, 45.0, 90.0)
    poison_limit: Annotated[int, Field(ge=1, le=1000)] = 3
    lease_seconds: Annotated[float, Field(ge=2, le=3600)] = 30.0
    metrics_log: str = "infra/observability/comfyui_metrics.ndjson"
    paths: Paths = Paths()
    comfyui: Comfy = Comfy()
    database: Database = Database()


def load_settings(environment: Mapping[str, str]) -> Settings:
    """The defaults and what the environment says; SettingsError in one line if it says nonsense."""
    tree: dict[str, Any] = {}
    for name, value in environment.items():
        if name.startswith(PREFIX) and name not in NOT_SETTINGS:
            *sections, key = name.removeprefix(PREFIX).lower().split("__")
            branch = tree
            for section in sections:
                branch = branch.setdefault(section, {})
                if not isinstance(branch, dict):
                    raise SettingsError(f"{name}: {section} is given as a value, too")
            branch[key] = value
    try:
        return Settings.model_validate(tree)
    except ValidationError as error:
        first = error.errors()[0]
        name = PREFIX + "__".join(str(part) for part in first["loc"] if isinstance(part, str)).upper()
        if first["type"] == "extra_forbidden":
            raise SettingsError(f"{name}: there is no such setting") from None
        given = "" if "://" in str(first["input"]) else f"={first['input']!r}"  # an address may hold a password
        raise SettingsError(f"{name}{given}: {first['msg']}") from None
