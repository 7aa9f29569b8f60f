"""Claims of benchmarks, smoke runs, and the list of scripts."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.__main__ import _conclude, _conclude_smoke, _Run, _scripts
from benchmarks.claims import Claim, Scale, paired_ratio, print_claims


def claim(figure: float, side: str = "at most", bar: float = 2) -> Claim:
    return Claim(claim="c", figure=figure, unit="s", side=side, bar=bar, rounds=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("figure", "side", "holds"),
    [
        (1.9, "at most", True),
        (2.0, "at most", True),
        (2.1, "at most", False),
        (2.1, "at least", True),
        (1.9, "at least", False),
        (float("nan"), "at most", False),
        (float("nan"), "at least", False),
    ],
)
def test_a_claim_holds_iff_its_figure_meets_the_bar(figure, side, holds):
    assert claim(figure, side).holds is holds


def test_a_claim_is_serialized_with_all_fields():
    keys = {"claim", "figure", "unit", "bar", "holds", "rounds", "details"}
    assert claim(1).to_dict().keys() == keys
    assert claim(1).to_dict()["bar"] == "at most 2"


def test_a_missed_claim_is_reported_as_missed(capsys):
    print_claims("t", [claim(3)])
    assert "NO" in capsys.readouterr().out
    assert _conclude([claim(3).to_dict(), claim(1).to_dict()], []) == 1
    assert "MISSED  c: 3 s, at most 2" in capsys.readouterr().out
    assert _conclude([claim(1).to_dict()], ["broken"]) == 1
    assert _conclude([claim(1).to_dict()], []) == 0


def test_a_paired_ratio_is_our_time_over_the_peers():
    """With a simulated clock that advances only while an action runs."""
    now = 0.0
    order: list[str] = []

    def action(name: str, seconds: float) -> Callable[[], None]:
        def run() -> None:
            nonlocal now
            now += seconds
            order.append(name)

        return run

    ratio = paired_ratio(action("ours", 2.0), action("peer", 0.5), rounds=3, clock=lambda: now)
    assert ratio.ratios == (4.0, 4.0, 4.0)
    assert order == ["ours", "peer", "ours", "peer", "peer", "ours", "ours", "peer"]


@pytest.mark.parametrize("name", _scripts())
def test_every_script_has_a_smoke_option(name, monkeypatch, capsys):
    """Parsing only: `--help` exits before anything is measured."""
    monkeypatch.setattr(sys, "argv", [name, "--smoke", "--help"])
    path = Path(__file__).parents[2] / "benchmarks" / f"{name.replace('.', '/')}.py"
    with pytest.raises(SystemExit) as exit_:
        runpy.run_path(str(path), run_name="__main__")
    assert exit_.value.code == 0
    assert "--smoke" in capsys.readouterr().out


def test_a_smoke_run_evaluates_no_claim(capsys):
    print_claims("t", [claim(3)], evaluated=False)
    printed = " ".join(capsys.readouterr().out.split())
    assert "NO" not in printed
    assert "not evaluated" in printed


def test_a_smoke_run_fails_only_if_a_script_fails(capsys):
    passed = _Run(name="works", seconds=1.0, claims=[claim(3).to_dict()])
    assert _conclude_smoke([passed], []) == 0
    assert _conclude_smoke([passed, _Run(name="broken", seconds=2.0, claims=None)], ["broken"]) == 1
    assert "benchmarks.broken: FAILED" in capsys.readouterr().out


def test_a_scale_picks_its_own_value():
    values = [scale.pick(full=3, quick=2, smoke=1) for scale in Scale]
    assert values == [3, 2, 1]
    assert [scale.small for scale in Scale] == [False, True, True]


def test_every_listed_script_can_be_run():
    names = _scripts()
    assert {"bundle", "fit", "startup", "world"} <= set(names)
    for name in names:
        path = Path(__file__).parents[2] / "benchmarks" / f"{name.replace('.', '/')}.py"
        text = path.read_text()
        assert "def measure(" in text or "_PARTS" in text
        assert 'if __name__ == "__main__":' in text


def test_a_script_runs_on_the_command_line(tmp_path):
    file = tmp_path / "claims.json"
    command = [sys.executable, "-m", "benchmarks.startup", "--smoke", "--json", file]
    process = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "evenhand --help" in process.stdout
    first, *imports = json.loads(file.read_text())
    assert first["rounds"] == 1
    assert first["scale"] == "smoke"
    assert first["holds"] is (first["figure"] <= 0.5)
    assert [claim["claim"] for claim in imports] == ["`import monitor`", "`import offline_audit`"]
