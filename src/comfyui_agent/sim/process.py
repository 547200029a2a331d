"""A ComfyUI, simulated or real, as a child process."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from comfyui_agent.domain.processes import module_command


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def answers(url: str) -> bool:
    """Whether a server answers there, even if it wants a login."""
    try:
        with urllib.request.urlopen(f"{url}/prompt", timeout=5):  # noqa: S310 - always http
            return True
    except urllib.error.HTTPError:
        return True
    except (urllib.error.URLError, OSError, ValueError):
        return False


@dataclass
class ServerProcess:
    """A server that can be stopped, killed and started again on the same port."""

    command: list[str]
    url: str
    folder: Path
    log: Path
    working_dir: Path | None = None
    start_seconds: float = 120.0
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def start(self) -> ServerProcess:
        """Launch the server and wait until it answers. If it does not, it is killed."""
        self.launch()
        try:
            self.wait_until_up()
        except BaseException:
            self.kill()
            raise
        return self

    def launch(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603 - the command is the caller's own
                self.command, stdout=log, stderr=subprocess.STDOUT, cwd=self.working_dir, start_new_session=True
            )

    def wait_until_up(self) -> None:
        assert self.process is not None
        deadline = time.monotonic() + self.start_seconds
        while not answers(self.url):
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.command[0]} ended at start:\n{self.log.read_text()[-3000:]}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"no answer at {self.url} after {self.start_seconds} s")
            time.sleep(0.02)

    def kill(self) -> None:
        """kill -9, as a crash would."""
        self._signal(signal.SIGKILL)

    def stop(self) -> None:
        self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> None:
        if self.process is not None and self.process.poll() is None:
            self._send(number)
            try:
                self.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self._send(signal.SIGKILL)
                self.process.wait(timeout=20)

    def _send(self, number: int) -> None:
        """Signal the whole process group: the command may be a script around the server."""
        assert self.process is not None
        if os.name == "nt":
            self.process.send_signal(number)
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    @property
    def output_dir(self) -> Path:
        return self.folder / "output"


def simulator(folder: Path, *flags: str, port: int | None = None) -> ServerProcess:
    """A simulator with its files and its log in a folder, not started yet. `flags` are those of `e3 sim`."""
    port = port or free_port()
    folder.mkdir(parents=True, exist_ok=True)
    command = module_command("comfyui_agent", "sim", "--port", str(port))
    command += ["--output-dir", str(folder / "output"), *flags]
    return ServerProcess(command, f"http://127.0.0.1:{port}", folder, folder / "server.log", start_seconds=20)
