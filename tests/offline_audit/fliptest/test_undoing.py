"""What undoes a flip: whom the model is asked about, and what becomes of its answers."""

from __future__ import annotations

import numpy as np
import pytest

from offline_audit import AuditInputError
from offline_audit.fliptest.flipset import Flipset
from tests.offline_audit.fliptest.flipping_people import drawn, model, report_of


def test_what_does_not_differ_has_no_figures_and_no_question():
    asked = []

    def listening(rows):
        asked.append(len(rows))
        return model(rows)

    report = report_of(drawn(400, 2), decide=listening)
    fixed = report.of("fixed")
    assert (fixed.magnitude, fixed.magnitude_interval, fixed.consistency) == (0.0, (0.0, 0.0), 0.0)
    assert (fixed.changed, fixed.undone) == (0.0, 0.0)
    assert "The same in all flips: fixed." in str(report)
    assert len(asked) == 5
    changed = [round(each.changed * report.asked) for each in report.features if each.changed]
    assert sorted(asked) == sorted(changed)


def test_the_model_is_asked_about_a_sample_of_many_flips():
    flipset = drawn(3_000, 4)
    whole, part = report_of(flipset), report_of(flipset, max_rows=500, seed=1)
    assert whole.asked > 2_000
    assert part.asked == 500
    one, other = whole.of("income").undone, part.of("income").undone
    assert one != other
    assert abs(one - other) < 4 * np.sqrt(one * (1 - one) / 500)
    assert part == report_of(flipset, max_rows=500, seed=1)
    assert part.of("income").magnitude == whole.of("income").magnitude


def test_rows_without_an_answer_are_left_out_and_counted():
    def half_silent(rows):
        return np.where(rows[:, 3] > 2, -1, model(rows)).astype(np.int8)

    flipset = drawn(2_000, 1)
    report = report_of(flipset, decide=half_silent)
    silent = flipset.flips("advantaged")[0] & (flipset.counterparts[0, :, 3] > 2)
    income = report.of("income")
    assert income.unanswered == silent.sum() > 0
    loud = Flipset(
        features=flipset.features[~silent],
        counterparts=flipset.counterparts[:, ~silent],
        decisions=flipset.decisions[~silent],
        counterpart_decisions=flipset.counterpart_decisions[:, ~silent],
    )
    assert income.undone == pytest.approx(report_of(loud).of("income").undone)
    assert "The model did not answer" in str(report)
    mute = report_of(flipset, decide=lambda rows: np.full(len(rows), -1, np.int8))
    assert mute.of("income").undone is None
    assert {each.name for each in mute.features} == {each.name for each in report.features}
    assert [each.name for each in mute.by_undoing] == ["fixed"]


@pytest.mark.parametrize(
    "answer",
    [
        lambda rows: np.zeros(len(rows) + 1, np.int8),
        lambda rows: np.full(len(rows), 2, np.int8),
        lambda rows: np.full(len(rows), 0.5),
    ],
)
def test_answers_that_are_none_are_refused(answer):
    with pytest.raises(AuditInputError, match="decide: for"):
        report_of(drawn(400, 1), decide=answer)
