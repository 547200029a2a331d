"""Every setting, with its default and with what may be written."""

from __future__ import annotations

import contextlib
import ipaddress
import math
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from comfyui_agent.config.yaml_text import NotYaml, parse


def _listed(value: Any) -> Any:
    """A list out of `15, 45, 90` or `[15, 45, 90]`, as an environment variable says it."""
    if not isinstance(value, str):
        return value
    if value.strip().startswith("["):
        with contextlib.suppress(NotYaml):
            return parse(value.encode("utf-8", "replace")).value
    return [part.strip() for part in value.split(",") if part.strip()]


def _a_list(value: Any) -> Any:
    value = _listed(value)
    return [value] if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _number(value: Any) -> Any:
    """True is no number, whatever Python says."""
    if isinstance(value, bool) or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError(f"{value} is not a number here")
    return value


def _networks(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        try:
            network = ipaddress.ip_network(value, strict=False)
        except ValueError:
            raise ValueError(f"{value[:60]!r} is no address and no network") from None
        if network.prefixlen == 0:
            raise ValueError(f"{value} is everybody, and a proxy may say who somebody is")
    return values


Number = Annotated[float, BeforeValidator(_number), Field(allow_inf_nan=False)]
Whole = Annotated[int, BeforeValidator(_number)]
Priority = Annotated[Whole, Field(ge=-(2**31), lt=2**31)]
Seconds = Annotated[Number, Field(gt=0, le=7 * 24 * 3600)]
Backoff = Annotated[tuple[Annotated[Number, Field(ge=0, le=24 * 3600)], ...], BeforeValidator(_a_list)]
Texts = Annotated[tuple[str, ...], BeforeValidator(_listed)]
Networks = Annotated[Texts, AfterValidator(_networks)]
Place = Annotated[str, Field(min_length=1, pattern=r"^[^\x00-\x1f]+$")]

Count = Annotated[Whole, Field(ge=0, le=10_000_000)]

COUNT = "a whole number, 0 for no limit, such as {}"
SECONDS = "a number of seconds above 0, such as {}"


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Paths(_Section):
    """Folders and files, relative to the workspace."""

    jobs_processing: Place = Field(
        default="jobs/processing", description="the folder for job files, such as jobs/processing"
    )
    jobs_finished: Place = Field(
        default="jobs/finished", description="a folder in the workspace, such as jobs/finished"
    )
    database: Place = Field(
        default="database/comfyui_agent.db", description="a file, such as database/comfyui_agent.db"
    )
    workflows: Place = Field(default="workflows", description="the folder of workflow templates, such as workflows")
    inputs: Texts = Field(default=(), description='a list of folders, such as ["/mnt/pictures"]')
    """Folders besides the workspace from which jobs may take input pictures."""
    keep_free_gb: Annotated[Number, Field(ge=0, le=1_000_000)] = Field(
        default=1.0, description="a number of gigabytes from 0 on, such as 1"
    )
    """What results leave free on their disk: those that would take more wait, as on a full disk."""


class Comfy(_Section):
    """The ComfyUI servers. `servers` wins over `api_base_url`."""

    api_base_url: str = Field(default="http://127.0.0.1:8188", description="an address, such as http://127.0.0.1:8188")
    servers: Texts = Field(
        default=(), description='a list of addresses, such as ["http://gpu1:8188", "http://gpu2:8188"]'
    )
    timeout_seconds: Seconds = Field(default=300.0, description=SECONDS.format(300))
    stall_seconds: Seconds = Field(default=120.0, description=SECONDS.format(120))
    failover_seconds: Seconds = Field(default=60.0, description=SECONDS.format(60))

    @property
    def urls(self) -> tuple[str, ...]:
        return self.servers or (self.api_base_url,)


class Database(_Section):
    url: str = Field(default="", description="the path of an SQLite file, such as sqlite:///database/comfyui_agent.db")


class Books(_Section):
    """Pages of books; used when books are there."""

    retry_limit: Annotated[Whole, Field(ge=0, le=1000)] = Field(
        default=3, description="a whole number from 0 to 1000, such as 3"
    )
    parallel_pages: bool = Field(default=True, description="true or false")


class Ui(_Section):
    """The web page of `e3 serve` and `e3 run`; `previews` asks servers for pictures of unfinished work."""

    host: str = Field(default="127.0.0.1", description="an address of this machine, such as 127.0.0.1")
    port: Annotated[Whole, Field(ge=1, le=65535)] = Field(
        default=8190, description="a port from 1 to 65535, such as 8190"
    )
    previews: bool = Field(default=True, description="true or false")
    enabled: bool = Field(default=True, description="true or false")
    """Whether `e3 run` serves the page."""
    tls_cert: str = Field(default="", description="a file with the certificate and its chain (PEM), such as tls/e3.pem")
    tls_key: str = Field(default="", description="the file with its key (PEM), such as tls/e3.key")
    trusted_proxies: Networks = Field(
        default=(), description='a list of addresses or networks, such as ["127.0.0.1", "10.0.0.0/24"]'
    )
    """Who may say for whom a request is: the addresses of the proxies in front of the page."""
    proxy_user_header: Annotated[str, Field(pattern=r"^([A-Za-z0-9-]{1,60})?$")] = Field(
        default="", description="the name of a header, such as X-Remote-User"
    )
    """The header in which a trusted proxy says who has logged in there."""
    proxy_user_role: Literal["read", "user", "admin"] = Field(default="user", description="read, user or admin")
    """The role of somebody who comes by a proxy for the first time."""
    proxy_hosts: Texts = Field(default=(), description='a list of names, such as ["e3.example.org"]')
    """The names under which people reach the page by a proxy on this machine."""
    user_priority_floor: Priority = Field(
        default=10, description="a whole number, the lowest that users may ask for, such as 10"
    )
    """Lower runs earlier: users get no further to the front."""
    changes_per_minute: Count = Field(default=3_000, description=COUNT.format(3000))
    reads_per_minute: Count = Field(default=30_000, description=COUNT.format(30000))
    """Requests of one token; without tokens, of one address, ten times as many."""
    open_jobs_per_user: Count = Field(default=100_000, description=COUNT.format(100000))
    """Jobs of a user's token that wait or render."""


class Sla(_Section):
    """What a service promises; `e3 sla check` judges by it."""

    images_per_minute: Annotated[Number, Field(ge=0)] = Field(default=20.0, description="a number, such as 20")
    concurrent_books: Annotated[Whole, Field(ge=0)] = Field(default=5, description="a whole number, such as 5")
    p95_seconds: Seconds = Field(default=45.0, description=SECONDS.format(45))
    error_rate: Annotated[Number, Field(ge=0, le=1)] = Field(
        default=0.02, description="a share from 0 to 1, such as 0.02"
    )
    recovery_seconds: Seconds = Field(default=120.0, description=SECONDS.format(120))


class Settings(_Section):
    """How E3 works."""

    default_priority: Priority = Field(default=50, description="a whole number; lower runs earlier, such as 50")
    retry_limit: Annotated[Whole, Field(ge=0, le=1000)] = Field(
        default=2, description="a whole number from 0 to 1000, such as 2"
    )
    poll_interval_ms: Annotated[Whole, Field(ge=10, le=60_000)] = Field(
        default=1000, description="milliseconds from 10 to 60000, such as 1000"
    )
    rescan_seconds: Annotated[Number, Field(ge=0.2, le=3600)] = Field(
        default=5.0, description="seconds from 0.2 to 3600, such as 5"
    )
    retry_backoff_seconds: Backoff = Field(default=(15.0, 45.0, 90.0), description="seconds, such as [15, 45, 90]")
    poison_limit: Annotated[Whole, Field(ge=1, le=1000)] = Field(
        default=3, description="a whole number from 1 to 1000, such as 3"
    )
    lease_seconds: Annotated[Number, Field(ge=2, le=3600)] = Field(
        default=30.0, description="seconds from 2 to 3600, such as 30"
    )
    batch_expiry_seconds: Seconds = Field(default=3600.0, description=SECONDS.format(3600))
    job_limit_kb: Annotated[Whole, Field(ge=1, le=65_536)] = Field(
        default=64, description="a whole number of kilobytes from 1 to 65536, such as 64"
    )
    """How much JSON the inputs and metadata of one job may take."""
    metrics_log: Place = Field(
        default="infra/observability/comfyui_metrics.ndjson",
        description="a file, such as infra/observability/metrics.ndjson",
    )
    paths: Paths = Field(default=Paths(), description="a section with keys such as jobs_processing")
    comfyui: Comfy = Field(default=Comfy(), description="a section with keys such as api_base_url")
    database: Database = Field(default=Database(), description="a section with the key url")
    books: Books = Field(default=Books(), description="a section with keys such as retry_limit")
    ui: Ui = Field(default=Ui(), description="a section with keys such as port")
    sla: Sla = Field(default=Sla(), description="a section with keys such as p95_seconds")

    @property
    def user_priority_floor(self) -> int:
        """The lowest priority that users may ask for: the default is theirs in any case."""
        return min(self.ui.user_priority_floor, self.default_priority)
