"""The clients: one for programs that wait, one for programs with an event loop. Both can do the same."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar, overload

import httpx2
from typing_extensions import Self

from comfyui_agent.domain.results import Result
from comfyui_agent.remote import calls, exchange
from comfyui_agent.remote.calls import Call, Request
from comfyui_agent.remote.exchange import TRIES, RemoteEvent
from comfyui_agent.remote.results import Download

P = ParamSpec("P")
T = TypeVar("T")

HERE = "http://127.0.0.1:8190"


class _Method(Generic[P, T]):
    """A call as a method: of a Client it returns its result, of an AsyncClient it is awaited."""

    def __init__(self, call: Callable[P, Call[T]]) -> None:
        self._call = call
        self.__doc__ = call.__doc__

    @overload
    def __get__(self, client: Client, kind: Any = None) -> Callable[P, T]: ...

    @overload
    def __get__(self, client: AsyncClient, kind: Any = None) -> Callable[P, Coroutine[Any, Any, T]]: ...

    @overload
    def __get__(self, client: None, kind: Any = None) -> Self: ...

    def __get__(self, client: Client | AsyncClient | None, kind: Any = None) -> Any:
        if client is None:
            return self
        drive = _drive if isinstance(client, Client) else _drive_async
        return functools.wraps(self._call)(lambda *args, **kwargs: drive(client, self._call(*args, **kwargs)))


def _drive(client: Any, call: Call[T]) -> T:
    request = next(call)
    while True:
        try:
            request = call.send(client.send(request))
        except StopIteration as ended:
            found: T = ended.value
            return found


async def _drive_async(client: Any, call: Call[T]) -> T:
    request = next(call)
    while True:
        try:
            request = call.send(await client.send(request))
        except StopIteration as ended:
            found: T = ended.value
            return found


class Calls:
    """What both clients can do, as methods."""

    submit = _Method(calls.submit)
    sweep = _Method(calls.sweep)
    book = _Method(calls.book)
    job = _Method(calls.job)
    jobs = _Method(calls.jobs)
    batch = _Method(calls.batch)
    results = _Method(calls.results)
    find = _Method(calls.find)
    wait_job = _Method(calls.wait_job)
    wait_batch = _Method(calls.wait_batch)
    retry = _Method(calls.retry)
    cancel = _Method(calls.cancel)
    cancel_batch = _Method(calls.cancel_batch)
    regenerate = _Method(calls.regenerate)
    upload = _Method(calls.upload)
    workflows = _Method(calls.workflows)
    workflow = _Method(calls.workflow)
    servers = _Method(calls.servers)
    status = _Method(calls.status)


class Client(Calls):
    """E3 over HTTP. What gets no answer is asked again; what makes something is made once all the same."""

    def __init__(self, address: str = HERE, token: str | None = None) -> None:
        self._http = httpx2.Client(**exchange.settings(address, token))

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def send(self, request: Request) -> Any:
        """Send a request, again if need be; the JSON of its answer. Refused or Unreachable."""
        tries = 0
        while True:
            response = None
            try:
                response = self._http.request(request.method, request.path, **exchange.options_of(request))
                if tries == TRIES or not exchange.is_to_be_repeated(response):
                    return exchange.answer_of(response)
            except httpx2.TransportError as error:
                exchange.check_tries(error, tries)
            time.sleep(exchange.pause(tries, response))
            tries += 1

    def download(self, result: Result, target: Path | str = ".") -> Path:
        """Fetch a result into a folder, or to a path. DamagedResult if its bytes are not those that were recorded."""
        tries = 0
        while True:
            response = None
            try:
                with self._http.stream("GET", result.url) as response:
                    if response.is_success:
                        with Download(result, Path(target)) as file:
                            for chunk in response.iter_bytes():
                                file.write(chunk)
                            return file.finish()
                    response.read()
                    exchange.check_passing(response, tries)
            except httpx2.TransportError as error:
                exchange.check_tries(error, tries)
            time.sleep(exchange.pause(tries, response))
            tries += 1

    def events(self, after: int | None = None, batch: str | None = None) -> Iterator[RemoteEvent]:
        """What happens, from now on or behind an event. A stream that breaks goes on where it was: none is missed."""
        tries = 0
        while True:
            try:
                with self._http.sse(**exchange.event_options(after, batch)) as stream:
                    if not stream.response.is_success:
                        stream.response.read()
                        exchange.check_passing(stream.response, tries)
                    else:
                        for each in stream:
                            tries, event = 0, exchange.read_event(each)
                            if event is not None:
                                after = event.id
                                yield event
            except httpx2.TransportError as error:
                exchange.check_tries(error, tries)
            tries += 1
            time.sleep(exchange.pause(tries))


class AsyncClient(Calls):
    """The same as Client, in an event loop."""

    def __init__(self, address: str = HERE, token: str | None = None) -> None:
        self._http = httpx2.AsyncClient(**exchange.settings(address, token))

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def send(self, request: Request) -> Any:
        """Send a request, again if need be; the JSON of its answer. Refused or Unreachable."""
        tries = 0
        while True:
            response = None
            try:
                response = await self._http.request(request.method, request.path, **exchange.options_of(request))
                if tries == TRIES or not exchange.is_to_be_repeated(response):
                    return exchange.answer_of(response)
            except httpx2.TransportError as error:
                exchange.check_tries(error, tries)
            await asyncio.sleep(exchange.pause(tries, response))
            tries += 1

    async def download(self, result: Result, target: Path | str = ".") -> Path:
        """Fetch a result into a folder, or to a path. DamagedResult if its bytes are not those that were recorded."""
        tries = 0
        while True:
            response = None
            try:
                async with self._http.stream("GET", result.url) as response:
                    if response.is_success:
                        with Download(result, Path(target)) as file:
                            async for chunk in response.aiter_bytes():
                                file.write(chunk)
                            return file.finish()
                    await response.aread()
                    exchange.check_passing(response, tries)
            except httpx2.TransportError as error:
                exchange.check_tries(error, tries)
            await asyncio.sleep(exchange.pause(tries, response))
            tries += 1

    async def events(self, after: int | None = None, batch: str | None = None) -> AsyncIterator[RemoteEvent]:
        """What happens, from now on or behind an event. A stream that breaks goes on where it was: none is missed."""
        tries = 0
        while True:
            try:
                async with self._http.sse(**exchange.event_options(after, batch)) as stream:
                    if not stream.response.is_success:
                        await stream.response.aread()
                        exchange.check_passing(stream.response, tries)
                    else:
                        async for each in stream:
                            tries, event = 0, exchange.read_event(each)
                            if event is not None:
                                after = event.id
                                yield event
            except httpx2.TransportError as error:
                exchange.check_tries(error, tries)
            tries += 1
            await asyncio.sleep(exchange.pause(tries))
