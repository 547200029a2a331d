"""A thin call of `e3 loadtest`, from this folder and with the same flags; see `python run_load_test.py --help`.

The metrics log and baselines go to `infra/observability/` of this checkout, wherever it is called from.
"""

from __future__ import annotations

import sys
from pathlib import Path

from comfyui_agent.__main__ import main

CHECKOUT = Path(__file__).resolve().parents[3]

if __name__ == "__main__":
    sys.argv[1:1] = ["loadtest", "-C", str(CHECKOUT)]
    main()
