"""Rewrite frozen texts and data: `python -m tests.snapshots.update [case …]`.

Figures are written once, for a case that has none, and never again.
"""

from __future__ import annotations

import sys

import torch

from tests.snapshots.cases import CASES
from tests.snapshots.files import FROZEN, PUBLIC_NAMES, as_json, figures_of, public_names


def update(names: list[str]) -> None:
    """Write the snapshots of these cases, or of all and the public names."""
    # As tests/conftest.py does.
    torch.set_num_threads(1)
    FROZEN.mkdir(exist_ok=True)
    for name in names or CASES:
        shown = CASES[name]()
        if shown.text is not None:
            (FROZEN / f"{name}.txt").write_text(shown.text.rstrip("\n") + "\n", encoding="utf-8")
        if shown.data is not None:
            (FROZEN / f"{name}.json").write_text(as_json(shown.data), encoding="utf-8")
        path = FROZEN / f"{name}.figures.json"
        if not path.exists():
            path.write_text(as_json(figures_of(shown)), encoding="utf-8")
    if not names:
        PUBLIC_NAMES.write_text(public_names(), encoding="utf-8")


if __name__ == "__main__":
    update(sys.argv[1:])
