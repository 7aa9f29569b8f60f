"""Snapshot cases: printed text and data of a result, on small fixed inputs."""

from __future__ import annotations

import atexit
import functools
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tests.snapshots.figures import plain

__all__ = ["CASES", "Shown", "case", "folder"]

CASES: dict[str, Callable[[], Shown]] = {}

# Keys whose values depend on the Parquet writer or on installed packages, not on the result.
# Rename them here whenever they are renamed in the package.
_MASKED_KEYS = frozenset({"bytes", "versions"})
_MASKED_WORDS = {
    r"\b[0-9a-f]{64}\b": "<sha256>",
    r"\b[0-9a-f]{12}…": "<sha256>…",
    r"\b[0-9.,]+ (bytes|kB|MB)": "<size>",
    r"127\.0\.0\.1:\d+": "<address>",
    r"evenhand \d+\.\d+\.\d+": "evenhand <version>",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Printed text and data of a result.

    Attributes:
        text: As printed; None if nothing is printed.
        data: Plain data; None if there are none.
    """

    text: str | None = None
    data: Any = None


def case(function: Callable[[], Any]) -> Callable[[], Any]:
    """Name a case after its function, and mask values that differ between runs."""

    @functools.cache
    def shown() -> Shown:
        result = function()
        if not isinstance(result, Shown):
            result = Shown(text=str(result), data=result.to_dict())
        text = None if result.text is None else _masked_text(result.text)
        return Shown(text=text, data=_masked(plain(result.data)))

    CASES[function.__name__] = shown
    return function


def _masked_text(text: str) -> str:
    text = text.replace(str(folder()), "<folder>").replace(torch.__version__, "<torch>")
    for pattern, word in _MASKED_WORDS.items():
        text = re.sub(pattern, word, text)
    return text


def _masked(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: "<masked>" if key in _MASKED_KEYS and not _of_model(item) else _masked(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_masked(item) for item in value]
    return _masked_text(value) if isinstance(value, str) else value


def _of_model(value: Any) -> bool:
    """Mask versions of packages; versions of models and paths are fixed."""
    return isinstance(value, list)


@functools.cache
def folder() -> Path:
    path = Path(tempfile.mkdtemp(prefix="snapshots-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path
