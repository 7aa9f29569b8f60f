"""The examples of the page on FlipTest run and print what it shows; its figures are correct."""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import json
import re
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.__main__ import _scripts
from monitor import World, decide, train_proxy_biased
from offline_audit import AuditedModel, flip_test, permutation_test
from offline_audit.maps import MAPS, detectable
from offline_audit.rendering import json_ready

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/methods/fliptest.md"
TEXT = PAGE.read_text()
CODE = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
SHOWN = re.findall(r"```\n\n```\n(.*?)```", TEXT, re.DOTALL)
NUMBER = re.compile(r"[+-]?(?:\d[\d,]*)?\.?\d+")


def run(code: str, names: dict[str, Any]) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, PAGE.name, "exec"), names)  # noqa: S102 - code of our own page
    return printed.getvalue()


def tokens(text: str) -> list[str]:
    """Words and numbers of a text, without its layout."""
    return text.replace("─", " ").split()


def tokens_match(shown: str, printed: str) -> bool:
    """Equal words; numbers may differ as training depends on the processor."""
    if NUMBER.sub("#", shown) != NUMBER.sub("#", printed):
        return False
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=True)
    numbers = ((float(a.replace(",", "")), float(b.replace(",", ""))) for a, b in pairs)
    return all(abs(a - b) <= 0.1 + 0.25 * max(abs(a), abs(b)) for a, b in numbers)


def occurs_in(part: list[str], printed: list[str]) -> bool:
    starts = range(len(printed) - len(part) + 1)
    return any(
        all(tokens_match(a, b) for a, b in zip(part, islice(printed, start, None), strict=False))
        for start in starts
        if tokens_match(part[0], printed[start])
    )


def require_shown(shown: str, printed: str) -> None:
    """Every part that the page shows is printed; `…` marks omitted text."""
    for part in shown.split("…"):
        if part.strip():
            assert occurs_in(tokens(part), tokens(printed)), part


@pytest.fixture(scope="module")
def lending() -> dict[str, Any]:
    """The names of the first example, after it was run."""
    names: dict[str, Any] = {}
    names["printed"] = run(CODE[0], names)
    return names


def test_the_example_prints_what_the_page_shows(lending):
    require_shown(SHOWN[0], lending["printed"])


def test_a_direction_prints_what_the_page_shows(lending):
    require_shown(SHOWN[1], run(CODE[1], lending))


def test_a_wrong_figure_or_word_is_detected(lending):
    printed = tokens(lending["printed"])
    rows = next(line for line in SHOWN[0].splitlines() if line.startswith("woman → man   "))
    assert occurs_in(tokens(rows), printed)
    assert not occurs_in(tokens(rows.replace("2.0%", "3.9%")), printed)
    assert not occurs_in(tokens(rows.replace("woman", "women")), printed)


def test_the_flipset_of_the_example_matches_the_true_flips(lending):
    model, people, result = (lending[name] for name in ("model", "people", "result"))
    women = people.groups["sex"] == 1
    direction = result.direction("woman", "man")
    truth = people.true_flips(model, "sex")[women]
    members = direction.flipset.members("advantaged") | direction.flipset.members("disadvantaged")
    assert truth.mean() == pytest.approx(
        stated(r"for ([\d.]+)% of women\s+the decision"), abs=0.005
    )
    assert truth.sum() == pytest.approx(100 * stated(r"contains exactly these (\d+)"), rel=0.25)
    # Training on another processor may change 1 in 1,000 rows.
    assert np.mean(members != truth) <= 0.001


def test_rates_of_the_example_do_not_differ_significantly(lending):
    people, result = lending["people"], lending["result"]
    rates = result.direction("woman", "man").rates
    assert rates[0] == pytest.approx(stated(r"granted to ([\d.]+)% of women"), abs=0.01)
    assert rates[1] == pytest.approx(stated(r"of women and ([\d.]+)% of men"), abs=0.01)
    groups = {"sex": lending["names"][people.groups["sex"]]}
    decisions = lending["model"](people.features)
    (finding,) = permutation_test(metrics=["selection_rate"], groups=groups, decisions=decisions)
    assert finding.p_value is not None
    assert finding.p_value > 0.05


def stated(pattern: str) -> float:
    """A share that the page states in percent."""
    match = re.search(pattern, TEXT)
    assert match is not None, pattern
    return float(match[1]) / 100


def test_true_shares_by_ethnicity_match_the_page():
    shown = re.search(r"([\d.]+) and ([\d.]+)% for belu, ([\d.]+) and ([\d.]+)% for cori, "
                      r"([\d.]+) and ([\d.]+)%\s+for dovar", TEXT)  # fmt: skip
    assert shown is not None
    world = World()
    model = partial(decide, train_proxy_biased(world.people(20_000, seed=1), seed=0))
    people, names = world.people(10_000, seed=2), world.attributes[1].groups
    truth = []
    for other in (1, 2, 3):
        for source, target in ((0, other), (other, 0)):
            transported = people.counterfactual("ethnicity", names[target])
            members = people.groups["ethnicity"] == source
            truth.append((model(people.features[members]) != model(transported[members])).mean())
    assert truth == pytest.approx([float(share) / 100 for share in shown.groups()], abs=0.015)


def test_the_example_on_adult_runs(tmp_path, monkeypatch):
    candidates = [p / "shared/data/adult/adult.data" for p in ROOT.parents]
    data = next((path for path in candidates if path.exists()), None)
    if data is None:
        pytest.skip("the Adult data are not on this machine")
    # Every eighth row, for speed.
    lines = data.read_text().splitlines()[::8]
    (tmp_path / "adult.data").write_text("\n".join(lines) + "\n")
    monkeypatch.chdir(tmp_path)
    printed = run(CODE[2], {})
    assert "Female → Male: On balance Female loses" in printed
    undoes = r"changes that one feature alone undoes(?: \(map not validated\))?: marital"
    assert re.search(undoes, " ".join(printed.split()))
    row = next(line for line in SHOWN[2].splitlines() if line.startswith("Female → Male "))
    printed_row = next(line for line in printed.splitlines() if line.startswith("Female → Male "))
    expected, actual = (float(re.findall(r"([\d.]+)% \(", line)[0]) for line in (row, printed_row))
    # Four standard errors of the share of 1,350 women.
    assert expected == pytest.approx(actual, abs=4.2)


def test_the_example_of_an_endpoint_uses_valid_parameters():
    calls = [node for node in ast.walk(ast.parse(CODE[3])) if isinstance(node, ast.Call)]
    named = {getattr(call.func, "attr", getattr(call.func, "id", "")): call for call in calls}
    for name, function in (("from_endpoint", AuditedModel.from_endpoint), ("flip_test", flip_test)):
        keywords = {keyword.arg for keyword in named[name].keywords}
        assert keywords <= inspect.signature(function).parameters.keys()


def test_defaults_and_limits_match_the_page():
    parameters = inspect.signature(flip_test).parameters
    named = re.findall(r"`(\w+)=(\d[\d_]*)`", TEXT)
    assert {"n_counterparts", "smallest_group", "smallest_cell", "max_rows"} == {
        name for name, _ in named
    }
    assert all(parameters[name].default == int(value) for name, value in named)
    pattern = (
        r"distance of ([\d.]+).*?\sby ([\d.]+) of its variance.*? AUC of ([\d.]+).*?than (\d) times"
    )
    limits = re.search(pattern, TEXT, re.DOTALL)
    assert limits is not None
    expected = (
        *(detectable.LARGEST_KS, detectable.LARGEST_REGRESSION),
        *(detectable.LARGEST_AUC, detectable.LARGEST_DISTANCE),
    )
    assert tuple(map(float, limits.groups())) == expected
    pattern = r"a KS distance of ([\d.]+),\s+([\d.]+) of.*?AUC of ([\d.]+).*?and (\d) times"
    required = re.search(pattern, TEXT[limits.end() :], re.DOTALL)
    assert required is not None
    bounds = detectable._KS, detectable._REGRESSION, detectable._AUC, detectable._DISTANCE
    assert tuple(map(float, required.groups())) == bounds


def test_every_map_is_on_the_page():
    heading, *rows = re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE)
    assert heading == "map"
    assert tuple(rows) == MAPS


def test_every_figure_exists_and_is_small():
    shown = [PAGE.parent / name for name in re.findall(r"!\[[^]]+\]\(([^)]+)\)", TEXT)]
    assert sorted(shown) == sorted((PAGE.parent / "images").glob("fliptest-*.png"))
    assert len(shown) == 4
    for image in shown:
        assert image.read_bytes().startswith(b"\x89PNG")
        assert image.stat().st_size < 200_000


def test_the_data_of_the_figures_are_those_of_the_example(lending):
    """Numbers may differ as training depends on the processor."""
    women = lending["result"].direction("woman", "man")
    for kind in ("transparency", "marginals"):
        file = PAGE.parent / f"images/fliptest-{kind}.json"
        shown = json.loads(file.read_text(encoding="utf-8"))
        assert shown["direction"] == women.name
        current = json_ready(getattr(women, kind)["disadvantaged"])
        assert shown[kind].keys() == current.keys()
        assert shown[kind]["members"] == pytest.approx(current["members"], rel=0.1)
    report = json.loads((PAGE.parent / "images/fliptest-transparency.json").read_text())
    features = {f["name"]: f for f in report["transparency"]["features"]}
    for change in women.transparency["disadvantaged"].features:
        assert features[change.name]["magnitude"] == pytest.approx(change.magnitude, abs=0.1)
        assert features[change.name]["undone"] == pytest.approx(change.undone, abs=0.05)


def test_the_shares_of_the_figure_by_ethnicity_are_close_to_the_true_shares():
    """The page states them, and another test computes them."""
    rows = json.loads((PAGE.parent / "images/fliptest-flips.json").read_text())["rows"]
    shown = re.search(r"([\d.]+) and ([\d.]+)% for belu, ([\d.]+) and ([\d.]+)% for cori, "
                      r"([\d.]+) and ([\d.]+)%\s+for dovar", TEXT)  # fmt: skip
    assert shown is not None
    both = [100 * (row["advantaged"] + row["disadvantaged"]) for row in rows]
    assert both == pytest.approx([float(share) for share in shown.groups()], abs=1.0)


def test_the_script_of_the_figures_has_no_claims():
    scripts = _scripts()
    assert "audits" in scripts
    assert "pictures" not in scripts
