"""Printed texts, data and figures of results are as frozen; figures are never regenerated."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.snapshots.cases import CASES
from tests.snapshots.files import FROZEN, PUBLIC_NAMES, as_json, figures_of, public_names

# Another processor may round the last digits of float32 differently.
_RELATIVE, _ABSOLUTE = 1e-5, 1e-7

every_case = pytest.mark.parametrize("name", CASES)


@every_case
def test_the_printed_text_is_as_frozen(name):
    text, path = CASES[name]().text, FROZEN / f"{name}.txt"
    assert path.exists() == (text is not None)
    if text is not None:
        assert text.rstrip("\n") + "\n" == path.read_text(encoding="utf-8")


@every_case
def test_the_data_are_as_frozen(name):
    data, path = CASES[name]().data, FROZEN / f"{name}.json"
    assert path.exists() == (data is not None)
    if data is not None:
        frozen = json.loads(path.read_text(encoding="utf-8"))
        assert list(differences(json.loads(as_json(data)), frozen)) == []


@every_case
def test_every_frozen_figure_is_still_computed(name):
    """Names and wording may change and figures may be added, but none may be removed."""
    frozen = json.loads((FROZEN / f"{name}.figures.json").read_text(encoding="utf-8"))
    current = figures_of(CASES[name]())
    assert current["of"] == frozen["of"]
    remaining = sorted(map(as_number, current["figures"]))
    for figure in sorted(map(as_number, frozen["figures"])):
        index = next((i for i, value in enumerate(remaining) if close(value, figure)), None)
        assert index is not None, f"{figure} is no longer computed"
        del remaining[index]


def test_every_frozen_file_belongs_to_a_case():
    names = {path.name.split(".")[0] for path in FROZEN.iterdir() if path != PUBLIC_NAMES}
    assert names == set(CASES)


def test_public_names_are_as_frozen():
    assert public_names() == PUBLIC_NAMES.read_text(encoding="utf-8")


def as_number(figure: str | float) -> float:
    return float(figure.rstrip("%")) if isinstance(figure, str) else float(figure)


def close(value: float, frozen: float) -> bool:
    return math.isclose(value, frozen, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)


def differences(current: Any, frozen: Any, path: str = ""):
    """Paths at which plain data differ."""
    if isinstance(current, dict) and isinstance(frozen, dict):
        for key in current.keys() | frozen.keys():
            if key in current and key in frozen:
                yield from differences(current[key], frozen[key], f"{path}/{key}")
            else:
                yield f"{path}/{key}"
    elif isinstance(current, list) and isinstance(frozen, list) and len(current) == len(frozen):
        for index, (current_item, frozen_item) in enumerate(zip(current, frozen, strict=True)):
            yield from differences(current_item, frozen_item, f"{path}/{index}")
    elif isinstance(current, float) and isinstance(frozen, int | float):
        if not close(current, frozen):
            yield path
    elif current != frozen:
        yield path
