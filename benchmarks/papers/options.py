"""Options of the reproductions, taken from the command line before `report` sees the rest."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.papers.smoke_data import smoke_folder

__all__ = ["DATA", "OUT", "data_folder", "out_folder"]

_ROOT = Path(__file__).resolve().parents[2]
DATA = _ROOT / "../shared/data"
OUT = _ROOT / "build/papers"
_SMOKE = _ROOT / "build/smoke"


def data_folder(files: Sequence[str]) -> Path:
    """The folder of `--data`; without the files that are needed, say so and stop.

    With `--smoke` a folder of short files, which are synthetic where the real ones lack.
    """
    folder = _taken("--data", DATA)
    if _smoke():
        return smoke_folder(files, folder, _SMOKE / "data")
    if missing := [str(folder / name) for name in files if not (folder / name).is_file()]:
        print(
            f"missing: {', '.join(missing)}\n"
            "Name the folder that holds them with --data DIR. The same sets are public: see\n"
            "sklearn.datasets.fetch_openml (adult, compas), the UCI repository and ProPublica.",
            file=sys.stderr,
        )
        sys.exit(2)
    return folder


def out_folder() -> Path:
    """The folder of `--out`, where figures go."""
    return _taken("--out", _SMOKE / "papers" if _smoke() else OUT)


def _smoke() -> bool:
    return "--smoke" in sys.argv


def _taken(option: str, default: Path) -> Path:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(option, dest="folder", type=Path, default=default)
    options, sys.argv[1:] = parser.parse_known_args()
    folder: Path = options.folder
    return folder
