"""Where the project is, and the data beside it that only some machines have."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
SHARED_DATA = ROOT.parent / "shared"
