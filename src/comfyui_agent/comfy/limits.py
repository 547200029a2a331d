"""The limits of requests to a server."""

from __future__ import annotations

from dataclasses import dataclass

MB = 1024 * 1024


@dataclass(frozen=True)
class Limits:
    """Seconds, bytes and counts. The defaults suit a server in the same network."""

    connect_seconds: float = 5.0
    answer_seconds: float = 30.0
    silent_download_seconds: float = 30.0
    download_seconds: float = 3600.0
    poll_seconds: float = 1.0
    deaf_poll_seconds: float = 1.0
    """`poll_seconds` while no websocket is open. The shorter of the two counts then."""
    is_quiet: bool = False
    """For hosts that count requests: ask nothing more often than `poll_seconds`. A poll counts as a probe."""
    look_again_seconds: float = 2.0
    lost_after_seconds: float = 60.0
    socket_ping_seconds: float = 15.0
    socket_quiet_seconds: float = 3.0
    upload_bytes_per_second: int = 256 * 1024
    retries: int = 2
    retry_pause_seconds: float = 0.1
    small_answer_bytes: int = 1 * MB
    history_bytes: int = 32 * MB
    queue_bytes: int = 64 * MB
    definitions_bytes: int = 64 * MB
    socket_frame_bytes: int = 32 * MB
    file_bytes: int = 8 * 1024 * MB
    keep_free_bytes: int = 0
    """Space that downloads leave free on their disk, at most half of it."""
    connections: int = 32
    downloads_at_once: int = 8
