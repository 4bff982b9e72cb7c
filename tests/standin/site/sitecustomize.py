"""Read by Python at its start: processes with the stand-in have no Triton, whose code objects no host can run."""

import sys

sys.modules["triton"] = None  # type: ignore[assignment]  # so that it cannot be found
