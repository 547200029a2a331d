"""All settings, with their defaults and what may be written."""

from __future__ import annotations

import contextlib
import ipaddress
import math
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from comfyui_agent.config.validation import Section as _Section
from comfyui_agent.config.yaml_text import NotYaml, parse
from comfyui_agent.domain.locations import is_url, object_url
from comfyui_agent.domain.notifications import NotificationKind
from comfyui_agent.domain.webhooks import MOST_WEBHOOKS, WebhookKind, checked_secret, checked_url


def _listed(value: Any) -> Any:
    """A list from `15, 45, 90` or `[15, 45, 90]`, as in environment variables."""
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
    """Reject booleans and infinite numbers."""
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


def _location(value: str) -> str:
    return object_url(value) if is_url(value) else value


def _inputs(values: tuple[str, ...]) -> tuple[str, ...]:
    if sum(map(is_url, values)) > 1:
        raise ValueError("input pictures are kept at one address: write one, and folders")
    return tuple(map(_location, values))


def _notify_addresses(value: Any) -> Any:
    """What is wrong with an address is never shown: it may be a secret."""
    found = _listed(value)
    if not isinstance(found, (list, tuple)) or not all(isinstance(each, str) for each in found):
        raise ValueError("this is no list of texts")
    for each in found:
        if not re.fullmatch(r"env:[A-Za-z_][A-Za-z0-9_]*|[A-Za-z][A-Za-z0-9+.-]*://\S*", each):
            raise ValueError("one of them is no address")
    return found


def _previews(value: Any) -> Any:
    """Older files say `true` or `false`."""
    return {"true": "always", "false": "never"}.get(str(value).lower(), value)


Number = Annotated[float, BeforeValidator(_number), Field(allow_inf_nan=False)]
Whole = Annotated[int, BeforeValidator(_number)]
Priority = Annotated[Whole, Field(ge=-(2**31), lt=2**31)]
Days = Annotated[Number, Field(ge=0, le=3650)]
Seconds = Annotated[Number, Field(gt=0, le=7 * 24 * 3600)]
Backoff = Annotated[tuple[Annotated[Number, Field(ge=0, le=24 * 3600)], ...], BeforeValidator(_a_list)]
Texts = Annotated[tuple[str, ...], BeforeValidator(_listed)]
Networks = Annotated[Texts, AfterValidator(_networks)]
Previews = Annotated[Literal["always", "watched", "never"], BeforeValidator(_previews)]
Place = Annotated[str, Field(min_length=1, pattern=r"^[^\x00-\x1f]+$")]


def _setting(default: Any, description: str) -> Any:
    """A setting. Complaints repeat the description, which says what may be written."""
    return Field(default=default, description=description)


def _between(what: str, default: float, least: float, most: float) -> Any:
    return Field(default=default, ge=least, le=most, description=f"{what} from {least} to {most}, such as {default:g}")


def _seconds(default: float) -> Any:
    return _setting(default, f"a number of seconds above 0, such as {default:g}")


def _days() -> Any:
    return _setting(0.0, "a number of days, 0 to keep it for ever, such as 30")


def _count(default: int) -> Any:
    return Field(default=default, ge=0, le=10_000_000, description=f"a whole number, 0 for no limit, such as {default}")


class Paths(_Section):
    """Folders and files, relative to the workspace."""

    jobs_processing: Place = _setting("jobs/processing", "the folder for job files, such as jobs/processing")
    jobs_finished: Place = _setting("jobs/finished", "a folder in the workspace, such as jobs/finished")
    database: Place = _setting("database/comfyui_agent.db", "a file, such as database/comfyui_agent.db")
    workflows: Place = _setting("workflows", "the folder of workflow templates, such as workflows")
    results: Annotated[str, AfterValidator(_location), Field(pattern=r"^[^\x00-\x1f]*$")] = _setting(
        "", "a folder, or an address such as s3://bucket/prefix"
    )
    """Where results lie under their names. Nothing: in the workspace."""
    inputs: Annotated[Texts, AfterValidator(_inputs)] = _setting(
        (), 'a list of folders, such as ["/mnt/pictures"], and an address such as s3://bucket/inputs'
    )
    """Folders from which input pictures may be taken, and where the copies that jobs use are kept."""
    cache_gb: Annotated[Number, Field(ge=0, le=1_000_000)] = _setting(2.0, "a number of gigabytes from 0 on, such as 2")
    """Local copies of objects."""
    keep_free_gb: Annotated[Number, Field(ge=0, le=1_000_000)] = _setting(
        1.0, "a number of gigabytes from 0 on, such as 1"
    )
    """Space that results leave free on their disk. Results that need it wait."""


def _variables(value: Any) -> Any:
    """Values of environment variables as text: YAML reads `1` as a number."""
    return {key: str(each) for key, each in value.items()} if isinstance(value, dict) else value


Cards = Annotated[tuple[Annotated[Whole, Field(ge=0, le=1023)], ...], BeforeValidator(_listed), Field(min_length=1)]
PerGpu = Annotated[Whole, Field(ge=1, le=64)]


class Launch(_Section):
    """ComfyUI processes of one directory, which E3 starts and supervises on this machine."""

    directory: Place = Field(description="the folder of a ComfyUI, such as /opt/ComfyUI")
    python: str = _setting("", "its Python, such as /opt/ComfyUI/venv/bin/python")
    arguments: Texts = _setting((), 'a list of arguments for its main.py, such as ["--fast"]')
    gpus: Literal["all", "cpu"] | Cards = _setting("all", "all, cpu, or a list of cards such as [0, 1]")
    per_gpu: Literal["auto"] | PerGpu = _setting(1, "a whole number from 1 to 64, or auto")
    vram_reserve_gb: Annotated[Number, Field(ge=0, le=1024)] | None = _setting(
        None, "a number of gigabytes from 0 on, such as 1.5"
    )
    port_from: Whole = _between("a port", 8188, 1024, 65000)
    environment: Annotated[dict[str, str], BeforeValidator(_variables)] = _setting(
        {}, "a mapping of variables, such as {HF_HOME: /models/hf}"
    )
    stop_with_agent: bool = _setting(False, "true or false")


class Comfy(_Section):
    """The ComfyUI servers. `servers` wins over `api_base_url`; processes of `launch` come on top of `servers`."""

    api_base_url: str = _setting("http://127.0.0.1:8188", "an address, such as http://127.0.0.1:8188")
    servers: Texts = _setting((), 'a list of addresses, such as ["http://gpu1:8188", "http://gpu2:8188"]')
    launch: Annotated[tuple[Launch, ...], BeforeValidator(_listed)] = _setting(
        (), "a list of sections, such as [{directory: /opt/ComfyUI, gpus: all}]"
    )
    timeout_seconds: Seconds = _seconds(300.0)
    stall_seconds: Seconds = _seconds(120.0)
    failover_seconds: Seconds = _seconds(60.0)

    @property
    def urls(self) -> tuple[str, ...]:
        """The configured servers. Where E3 launches its own, `api_base_url` is not among them."""
        return self.servers or (() if self.launch else (self.api_base_url,))


class Routing(_Section):
    """Which server gets which job. `stay_seconds: 0` keeps strictly to the order of ids."""

    stay_seconds: Annotated[Number, Field(ge=0, le=24 * 3600)] = _setting(
        120.0, "a number of seconds from 0 on, such as 120"
    )


class Database(_Section):
    url: str = _setting("", "sqlite:///database/comfyui_agent.db, or postgresql://user@host/name")


class Retention(_Section):
    """What running agents remove when it is so many days old. Nothing that is open, nor any of its batch."""

    jobs_days: Days = _days()
    events_days: Days = _days()
    attempts_days: Days = _days()
    takes_days: Days = _days()
    inputs_days: Days = _days()
    thumbnails_days: Days = _days()
    keep_files: bool = _setting(True, "true or false")
    """Whether the results of removed jobs stay on disk."""


class Books(_Section):
    """Pages of books."""

    retry_limit: Whole = _between("a whole number", 3, 0, 1000)
    parallel_pages: bool = _setting(True, "true or false")


class Ui(_Section):
    """The web page of `e3 serve` and `e3 run`. `previews` asks servers for pictures of unfinished work."""

    host: str = _setting("127.0.0.1", "an address of this machine, such as 127.0.0.1")
    port: Whole = _between("a port", 8190, 1, 65535)
    previews: Previews = _setting("watched", "always, watched or never")
    enabled: bool = _setting(True, "true or false")
    tls_cert: str = _setting("", "a file with the certificate and its chain (PEM), such as tls/e3.pem")
    tls_key: str = _setting("", "the file with its key (PEM), such as tls/e3.key")
    trusted_proxies: Networks = _setting((), 'a list of addresses or networks, such as ["127.0.0.1", "10.0.0.0/24"]')
    proxy_user_header: Annotated[str, Field(pattern=r"^([A-Za-z0-9-]{1,60})?$")] = _setting(
        "", "the name of a header, such as X-Remote-User"
    )
    proxy_user_role: Literal["read", "user", "admin"] = _setting("user", "read, user or admin")
    proxy_hosts: Texts = _setting((), 'a list of names, such as ["e3.example.org"]')
    user_priority_floor: Priority = _setting(10, "a whole number, the lowest that users may ask for, such as 10")
    changes_per_minute: Whole = _count(3_000)
    reads_per_minute: Whole = _count(30_000)
    """Requests of one token. Without tokens, one address may make ten times as many."""
    open_jobs_per_user: Whole = _count(100_000)


def _editor(value: str | None) -> str | None:
    if value is not None and "://" in value and not value.startswith(("http://", "https://")):
        raise ValueError("an editor's address begins with http:// or https://")
    return value


class Gateway(_Section):
    """ComfyUI's protocol in front of the whole fleet, in `e3 run` and `e3 gateway`."""

    port: Annotated[Whole, Field(ge=1, le=65535)] | None = _setting(None, "a port from 1 to 65535, such as 8187")
    """None: `e3 run` starts no gateway."""
    host: str = _setting("127.0.0.1", "an address of this machine, such as 127.0.0.1")
    editor: Annotated[Place | None, AfterValidator(_editor)] = _setting(
        None, "the name or address of a ComfyUI, such as gpu1:8188 or http://gpu1:8188"
    )
    """Gets what is no prompt, result or fact of the fleet. None: the first server."""


class Notify(_Section):
    """Whom to tell through apprise when work has ended or a person is needed."""

    urls: Annotated[tuple[SecretStr, ...], BeforeValidator(_notify_addresses), Field(max_length=20)] = _setting(
        (),
        'a list of addresses for apprise, or of variables that hold one, such as ["ntfys://ntfy.sh/topic", "env:CHAT"]',
    )
    on: Annotated[tuple[NotificationKind, ...], BeforeValidator(_listed)] = _setting(
        tuple(NotificationKind), "a list of batch, book, night, attention and server"
    )
    quiet_seconds: Seconds = _seconds(60.0)
    """Between two messages of one kind. What happens meanwhile is in the next one."""


def _secret(value: Any) -> Any:
    """What is wrong with a secret never shows it."""
    if not isinstance(value, str) or not re.fullmatch(r"env:[A-Za-z_][A-Za-z0-9_]*", value):
        checked_secret(value)
    return value


class Webhook(_Section):
    """A program that is told of events over HTTP."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,59}$")] = Field(
        description="a name of its own, such as backend"
    )
    url: Annotated[str, AfterValidator(checked_url)] = Field(description="an address, such as https://example.org/e3")
    events: Annotated[tuple[WebhookKind, ...], BeforeValidator(_listed), Field(min_length=1)] = Field(
        description="a list of job, batch, book, server and attention"
    )
    secret: Annotated[SecretStr, BeforeValidator(_secret)] = Field(
        description="whsec_ and 24 to 64 bytes in base64, or env:NAME"
    )
    allow: Texts = _setting((), 'a list of hosts that may have a private address, such as ["backend.lan"]')


def _webhooks(found: tuple[Webhook, ...]) -> tuple[Webhook, ...]:
    if len({each.name for each in found}) < len(found):
        raise ValueError("two of them have the same name")
    return found


class Sla(_Section):
    """The targets of `e3 sla check`."""

    images_per_minute: Annotated[Number, Field(ge=0)] = _setting(20.0, "a number, such as 20")
    concurrent_books: Annotated[Whole, Field(ge=0)] = _setting(5, "a whole number, such as 5")
    p95_seconds: Seconds = _seconds(45.0)
    error_rate: Number = _between("a share", 0.02, 0, 1)
    recovery_seconds: Seconds = _seconds(120.0)


class Settings(_Section):
    """All settings of a workspace."""

    default_priority: Priority = _setting(50, "a whole number; lower runs earlier, such as 50")
    retry_limit: Whole = _between("a whole number", 2, 0, 1000)
    poll_interval_ms: Whole = _between("milliseconds", 1000, 10, 60_000)
    rescan_seconds: Number = _between("seconds", 5.0, 0.2, 3600)
    retry_backoff_seconds: Backoff = _setting((15.0, 45.0, 90.0), "seconds, such as [15, 45, 90]")
    poison_limit: Whole = _between("a whole number", 3, 1, 1000)
    lease_seconds: Number = _between("seconds", 30.0, 2, 3600)
    batch_expiry_seconds: Seconds = _seconds(3600.0)
    job_limit_kb: Whole = _between("a whole number of kilobytes", 64, 1, 65_536)
    metrics_log: Place = _setting(
        "infra/observability/comfyui_metrics.ndjson", "a file, such as infra/observability/metrics.ndjson"
    )
    paths: Paths = _setting(Paths(), "a section with keys such as jobs_processing")
    comfyui: Comfy = _setting(Comfy(), "a section with keys such as api_base_url")
    routing: Routing = _setting(Routing(), "a section with the key stay_seconds")
    database: Database = _setting(Database(), "a section with the key url")
    retention: Retention = _setting(Retention(), "a section with keys such as jobs_days")
    books: Books = _setting(Books(), "a section with keys such as retry_limit")
    ui: Ui = _setting(Ui(), "a section with keys such as port")
    gateway: Gateway = _setting(Gateway(), "a section with keys such as port")
    notify: Notify = _setting(Notify(), "a section with keys such as urls")
    webhooks: Annotated[
        tuple[Webhook, ...], BeforeValidator(_listed), AfterValidator(_webhooks), Field(max_length=MOST_WEBHOOKS)
    ] = _setting((), "a list of sections with name, url, events and secret")
    sla: Sla = _setting(Sla(), "a section with keys such as p95_seconds")

    @property
    def user_priority_floor(self) -> int:
        """The lowest priority that users may ask for. The default priority is always allowed."""
        return min(self.ui.user_priority_floor, self.default_priority)
