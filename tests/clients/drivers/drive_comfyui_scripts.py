"""Runs one of ComfyUI's script_examples, with the two things changed that people change: the address and the prompt."""

from __future__ import annotations

import json
import re
import runpy
import sys
from base64 import b64encode
from pathlib import Path

wanted = json.load(sys.stdin)
text = Path(wanted["folder"], "script_examples", sys.argv[1]).read_text(encoding="utf-8")
text = text.replace("127.0.0.1:8188", wanted["url"].removeprefix("http://"))
graph = json.dumps(wanted["graph"])
text, prompts = re.subn('(?s)prompt_text = """.*?"""', f'prompt_text = """{graph}"""', text)
assert prompts == 1
Path("script.py").write_text(text, encoding="utf-8")
images = runpy.run_path("script.py").get("images", {})
found = {name: [b64encode(content).decode() for content in contents] for name, contents in images.items()}
Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")
