"""Run the few tests that have just failed once more, alone and one after another, and name them.

Some tests hold promises about seconds. Beside three others on a small machine they can miss them for reasons of the
machine; alone they must not. A test that fails twice fails the run, and so do many that failed once.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")
MOST = 6


def main() -> int:
    try:
        failed = sorted(json.loads(LAST_FAILED.read_text()))
    except (OSError, ValueError):
        failed = []
    if not failed or len(failed) > MOST or not all("::" in name for name in failed):
        sys.stderr.write(f"{len(failed)} tests failed: no second try.\n")
        return 1
    sys.stderr.write("\n  ".join(["Failed beside others, once more alone:", *failed]) + "\n")
    return subprocess.run([sys.executable, "-m", "pytest", *failed], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
