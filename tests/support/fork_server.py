"""A fork server for tests: `python -m comfyui_agent …` as a fork of a process that has imported everything.

Tests start hundreds of agents and simulators, and most of the time that this takes is importing. A process from here is
a real one, with a pid, signals, folders and an environment of its own, in the namespaces of whoever asked for it. Only
its imports are shared. Linux only; where something unusual is asked for, `subprocess` starts the process as ever.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from comfyui_agent.domain.processes import module_command
from support.hosts import KINDS, enter, own_namespaces
from support.terminal import take_terminal

MODULE = "comfyui_agent"
COMMANDS = ([sys.executable, "-m", MODULE], module_command(MODULE))
OWN_START = "E3_TESTS_OWN_START"
"""A process whose environment has this is started by itself: where imports or memory are the point of a test."""
LARGEST = 1024 * 1024
HERE = Path(__file__).parent
"""Where the scripts are that run an agent with something changed."""
SERVER = "from support import fork_server; import sys; fork_server.serve(int(sys.argv[1]))"


class ForkServer:
    """The client side, one for each process that runs tests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._statuses: dict[int, int] = {}
        self.pids: set[int] = set()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def fork(self, request: dict[str, Any], handles: list[int]) -> int:
        with self._lock:
            answer = self._ask(request, handles)
        pid = int(answer["pid"])
        self.pids.add(pid)
        self._statuses.pop(pid, None)
        return pid

    def status(self, pid: int) -> int | None:
        """How a process ended, as `os.waitpid` tells it; None while it runs."""
        with self._lock:
            if pid not in self._statuses:
                answer = self._ask({"wait": pid}, [])
                if answer["status"] is None:
                    return None
                self._statuses[pid] = answer["status"]
            return self._statuses[pid]

    def stop(self) -> None:
        if self._process is not None and self._socket is not None:
            self._socket.close()
            self._process.wait()
        self._process = self._socket = None

    def _ask(self, request: dict[str, Any], handles: list[int]) -> dict[str, Any]:
        if self._socket is None:
            self._start()
        assert self._socket is not None
        socket.send_fds(self._socket, [json.dumps(request).encode()], handles)
        answer: dict[str, Any] = json.loads(self._socket.recv(LARGEST))
        return answer

    def _start(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LARGEST)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        command = [sys.executable, "-c", SERVER, str(theirs.fileno())]
        self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment)
        theirs.close()


CLIENT = ForkServer()
execute_child: Any = getattr(subprocess.Popen, "_execute_child", None)
internal_poll: Any = getattr(subprocess.Popen, "_internal_poll", None)
try_wait: Any = getattr(subprocess.Popen, "_try_wait", None)


def install() -> None:
    """From now on `subprocess` takes our own commands from the fork server."""
    if sys.platform == "linux" and OWN_START not in os.environ:
        for name, replacement in (
            ("_execute_child", _execute_child),
            ("_internal_poll", _internal_poll),
            ("_try_wait", _try_wait),
        ):
            setattr(subprocess.Popen, name, replacement)


def _execute_child(popen: Any, *facts: Any) -> None:
    request = _request(facts)
    if request is None or sys._getframe(2).f_globals.get("__name__", "").startswith("asyncio"):
        execute_child(popen, *facts)
        CLIENT.pids.discard(popen.pid)  # numbers come round again
        return
    pipes = facts[10:16]
    standard = [
        handle if handle != -1 else own for handle, own in zip(pipes[0:1] + pipes[3:6:2], (0, 1, 2), strict=True)
    ]
    namespaces = own_namespaces()
    popen.pid = CLIENT.fork(request, [*standard, *namespaces])
    for each in namespaces:
        os.close(each)
    popen._child_created = True
    popen._close_pipe_fds(*pipes)


def _request(facts: tuple[Any, ...]) -> dict[str, Any] | None:
    """What the server is asked for; None if this is not for it."""
    command, _, preexec_fn, _, pass_fds, cwd, env, _, _, shell = facts[:10]
    if shell or preexec_fn not in (None, take_terminal) or pass_fds or isinstance(command, (str, bytes)):
        return None
    words = [os.fspath(word) for word in command]
    if len(words) < 2 or any(isinstance(word, bytes) for word in words):
        return None
    start = next((each for each in COMMANDS if words[: len(each)] == each), None)
    script = words[1] if words[0] == sys.executable and Path(words[1]).parent == HERE else ""
    start = words[:2] if script else start
    environment = {
        os.fsdecode(key): os.fsdecode(value) for key, value in (env if env is not None else os.environ).items()
    }
    changed = {key for key in environment.keys() | os.environ.keys() if environment.get(key) != os.environ.get(key)}
    if start is None or OWN_START in environment or any(key.startswith("PYTHON") for key in changed):
        return None
    return {
        "script": script,
        "arguments": words[len(start) :],
        "cwd": os.fspath(cwd) if cwd is not None else str(Path.cwd()),
        "env": environment,
        "session": bool(facts[21]),
        "terminal": preexec_fn is take_terminal,
    }


def _internal_poll(popen: Any, _deadstate: Any = None, *more: Any) -> Any:
    if popen.returncode is None and popen.pid in CLIENT.pids:
        _settle(popen)
        return popen.returncode
    return internal_poll(popen, _deadstate, *more)


def _try_wait(popen: Any, wait_flags: int) -> tuple[int, int]:
    if popen.pid not in CLIENT.pids:
        found: tuple[int, int] = try_wait(popen, wait_flags)
        return found
    pause = threading.Event()
    while (status := CLIENT.status(popen.pid)) is None:
        if wait_flags & os.WNOHANG:
            return 0, 0
        pause.wait(0.005)
    return popen.pid, status


def _settle(popen: Any) -> None:
    status = CLIENT.status(popen.pid)
    if status is not None:
        popen._handle_exitstatus(status)


# The server.


def serve(handle: int) -> None:
    """Fork as asked until the other side goes."""
    _import_everything()
    with socket.socket(fileno=handle) as asked:
        while True:
            message, handles, _, _ = socket.recv_fds(asked, LARGEST, 3 + len(KINDS))
            if not message:
                return
            request = json.loads(message)
            if "wait" in request:
                asked.send(json.dumps({"status": _status_of(request["wait"])}).encode())
                continue
            pid = os.fork()
            if pid == 0:
                _run(request, handles)
            for each in handles:
                os.close(each)
            asked.send(json.dumps({"pid": pid}).encode())


def _status_of(pid: int) -> int | None:
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return 0
    return status if found else None


def _import_everything() -> None:
    import gc
    import importlib

    from comfyui_agent.cli.app import Commands

    for name in Commands.summaries:
        importlib.import_module(f"comfyui_agent.cli.{Commands.modules.get(name, name)}")
    parts = ("sim.simulator", "engine.composition", "engine.intake.monitor", "web.page_server", "store.connect")
    for module in (*parts, "store.postgres.driver"):
        importlib.import_module(f"comfyui_agent.{module}")
    gc.freeze()


def _run(request: dict[str, Any], handles: list[int]) -> None:
    """The forked process: like an interpreter that begins with `-m comfyui_agent`."""
    import atexit
    import random
    import runpy
    import traceback

    code: Any = 1
    try:
        if request["session"]:
            os.setsid()
        enter(handles[3:])
        for number, handle in enumerate(handles[:3]):
            os.dup2(handle, number)
        os.closerange(3, 1024)
        if request["terminal"]:
            take_terminal()
        os.environ.clear()
        os.environ.update(request["env"])
        os.chdir(request["cwd"])
        random.seed()
        _open_standard_files()
        sys.argv = [request["script"] or "e3", *request["arguments"]]
        if request["script"]:
            sys.path.insert(0, str(HERE))
            runpy.run_path(request["script"], run_name="__main__")
        else:
            runpy.run_module(MODULE, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
        if isinstance(ended.code, str):
            sys.stderr.write(f"{ended.code}\n")
    except BaseException:  # noqa: BLE001 - as an interpreter does
        traceback.print_exc()
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                code = code or 120
        os._exit(code & 0xFF)


def _open_standard_files() -> None:
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # type: ignore[misc] # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", buffering=1 if os.isatty(1) else -1, closefd=False)  # type: ignore[misc] # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # type: ignore[misc] # noqa: SIM115
