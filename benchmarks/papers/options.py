"""Command-line options of the reproductions, removed before `report` parses the rest."""

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
    """The folder of `--data`; exits with a message if a file is missing.

    With `--smoke`, a folder of short files, which are synthetic if the real ones are missing.
    """
    folder = _take_option("--data", DATA)
    if _smoke():
        return smoke_folder(files, folder, _SMOKE / "data")
    if missing := [str(folder / name) for name in files if not (folder / name).is_file()]:
        print(
            f"missing: {', '.join(missing)}\n"
            "Pass their folder with --data DIR. The data sets are public: see\n"
            "sklearn.datasets.fetch_openml (adult, compas), the UCI repository and ProPublica.",
            file=sys.stderr,
        )
        sys.exit(2)
    return folder


def out_folder() -> Path:
    """The folder of `--out`, to which figures are written."""
    return _take_option("--out", _SMOKE / "papers" if _smoke() else OUT)


def _smoke() -> bool:
    return "--smoke" in sys.argv


def _take_option(option: str, default: Path) -> Path:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(option, dest="folder", type=Path, default=default)
    options, sys.argv[1:] = parser.parse_known_args()
    folder: Path = options.folder
    return folder
