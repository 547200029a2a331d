"""A sweep from far away, cell by cell as in a notebook: what would it be, render it, look at the grid.

RENDER_URL=http://127.0.0.1:8190 RENDER_TOKEN=… python sweep_and_grid.py
"""

# %% Connect.
import os
import time
from pathlib import Path

from comfyui_agent.remote import Client, Refused, grid_of

e3 = Client(os.environ.get("RENDER_URL", "http://127.0.0.1:8190"), os.environ.get("RENDER_TOKEN"))
print(e3.status().sentence)

# %% What can be set?
workflow_id = "wf_realistic_portrait"
for each in e3.workflow(workflow_id).inputs:
    print(f"{each.name:<16} {each.value!r}")

# %% Two seeds by two guidances. Run this cell again, and it is the same sweep.
sweep_id = os.environ.get("SWEEP", "portraits-1")
found = e3.sweep(
    workflow_id,
    {"seed": "1..2", "cfg": "5,9"},
    inputs={"prompt": "a lighthouse in a storm"},
    key=sweep_id,
)
print(f"{found.id}: {found.total} jobs")

# %% Wait for it, and fetch what it made.
batch = e3.wait_batch(found.id, timeout=600)
print(batch.sentence)
folder = Path("portraits")
folder.mkdir(exist_ok=True)
for member in e3.results(batch.id).results:
    for result in member.results:
        print(f"{e3.download(result, folder)}  {member.settings}")

# %% The grid, with labels. It is drawn when the last picture is there.
for _ in range(60):
    try:
        print(f"look at {e3.download(grid_of(batch.id), folder)}")
        break
    except Refused:
        time.sleep(1)
