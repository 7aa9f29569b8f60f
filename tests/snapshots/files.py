"""Paths and contents of the snapshot files."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

from tests.snapshots.case import Shown
from tests.snapshots.figures import numbers_in, numeric_leaves

__all__ = ["FROZEN", "PACKAGES", "PUBLIC_NAMES", "as_json", "figures_of", "public_names"]

FROZEN = Path(__file__).parent / "frozen"
PUBLIC_NAMES = FROZEN / "public_names.txt"
PACKAGES = ("monitor", "offline_audit")


def figures_of(shown: Shown) -> dict[str, Any]:
    """Numbers of the data, or of the printed text if there are no data."""
    if shown.data is not None:
        return {"of": "data", "figures": numeric_leaves(shown.data)}
    return {"of": "text", "figures": numbers_in(shown.text or "")}


def as_json(value: Any) -> str:
    """Text of a snapshot file."""
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def public_names() -> str:
    """`__all__` of the two packages, one name per line."""
    return "".join(
        f"{package} {name}\n"
        for package in PACKAGES
        for name in sorted(importlib.import_module(package).__all__)
    )
