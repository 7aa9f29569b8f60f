"""A benchmark's claims say what was measured, and a missed bar is said to be missed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.__main__ import _conclude, _scripts
from benchmarks.claims import Claim, paired_ratio, print_claims


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


def test_a_claim_is_written_with_all_its_fields():
    keys = {"claim", "figure", "unit", "bar", "holds", "rounds", "details"}
    assert claim(1).to_dict().keys() == keys
    assert claim(1).to_dict()["bar"] == "at most 2"


def test_a_missed_claim_is_shown_as_missed(capsys):
    print_claims("t", [claim(3)])
    assert "NO" in capsys.readouterr().out
    assert _conclude([claim(3).to_dict(), claim(1).to_dict()], []) == 1
    assert "MISSED  c: 3 s, at most 2" in capsys.readouterr().out
    assert _conclude([claim(1).to_dict()], ["broken"]) == 1
    assert _conclude([claim(1).to_dict()], []) == 0


def test_a_paired_ratio_is_ours_over_theirs():
    ratio = paired_ratio(lambda: time.sleep(0.02), lambda: time.sleep(0.002), rounds=3)
    assert len(ratio.ratios) == 3
    assert 2 < ratio.median < 11


def test_every_script_is_found_and_nothing_else():
    found = _scripts()
    assert {"bundle", "fit", "startup", "world"} <= set(found)
    for name in found:
        path = Path(__file__).parents[2] / "benchmarks" / f"{name.replace('.', '/')}.py"
        text = path.read_text()
        assert "def measure(" in text or "_PARTS" in text
        assert 'if __name__ == "__main__":' in text


def test_a_script_runs_as_its_users_run_it(tmp_path):
    file = tmp_path / "claims.json"
    command = [sys.executable, "-m", "benchmarks.startup", "--quick", "--json", file]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "evenhand --help" in done.stdout
    (found,) = json.loads(file.read_text())
    assert found["rounds"] == 7
    assert found["holds"] is (found["figure"] <= 0.5)
