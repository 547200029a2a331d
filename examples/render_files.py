"""Render job files at an E3 elsewhere, and fetch the results: python render_files.py prompts/*.yaml

The bytes of a file are its key: running this again renders nothing twice, and goes on where it was killed.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import yaml

from comfyui_agent.remote import Client, IdTaken


def main(paths: list[str]) -> int:
    target = Path(os.environ.get("PICTURES", "pictures"))
    target.mkdir(parents=True, exist_ok=True)
    failed = 0
    with Client(os.environ.get("RENDER_URL", "http://127.0.0.1:8190"), os.environ.get("RENDER_TOKEN")) as e3:
        made = {path: submitted(e3, Path(path).read_bytes()) for path in paths}
        for path, name in made.items():
            job = e3.wait_job(name)
            failed += job.status != "done"
            files = [str(e3.download(each, target)) for each in job.results]
            print(f"{path}: {', '.join(files) or (job.error_trace or '').partition(chr(10))[0]}")
    return 1 if failed else 0


def submitted(e3: Client, text: bytes) -> str:
    """The id of the job of a file, which is made once."""
    key = hashlib.sha256(text).hexdigest()
    said = yaml.safe_load(text)
    said.pop("outputs", None)  # results are fetched, wherever they lie there
    try:
        return str(e3.submit(**said, external_id=key).id)
    except IdTaken as taken:
        if taken.made is None:
            raise
        return taken.made.id


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
