"""A million jobs on PostgreSQL, and people who look at them: how long each page of the store takes."""

from __future__ import annotations

import asyncio

from looking import measure_looks
from pg_filling import fill_million
from pg_server import postgres
from report import Line


def measure() -> list[Line]:
    with postgres() as server, server.fresh() as url:
        fill_million(url)
        return asyncio.run(measure_looks(url, "postgres"))


if __name__ == "__main__":
    for line in measure():
        print(line.text(), flush=True)
