"""`make bench` in its smallest size: every measurement runs to its end and finds figures that can be."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"
LINE = re.compile(
    r"^(?:met   |MISSED)  (?P<what>.+): goal (?P<sign>[≤≥]) .+, reached (?P<figure>-?[\d.,e+-]+)", re.MULTILINE
)
ENDED = re.compile(r"^        (?P<name>[a-z_]+)\S*?(?: at .+)?: [\d.]+ s$", re.MULTILINE)
MOST = 1e6


@pytest.mark.slow
@pytest.mark.timeout(420)
def test_every_measurement_runs_and_its_figures_are_sane() -> None:
    command = [sys.executable, str(BENCH / "run.py"), "--quick"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert told.returncode == 0, f"{told.stdout[-3000:]}\n{told.stderr[-3000:]}"
    benches = {path.stem for path in BENCH.glob("*.py") if re.search(r"^(async )?def measure", path.read_text(), re.M)}
    assert {found["name"] for found in ENDED.finditer(told.stdout)} == benches - {"pairs"}
    lines = list(LINE.finditer(told.stdout))
    assert len(lines) > 80
    for line in lines:
        figure = float(line["figure"].replace(",", ""))
        assert figure > 0 if line["sign"] == "≥" else figure < MOST, line[0]
