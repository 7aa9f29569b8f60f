"""One contract for all audits: parameters, input, results and findings.

A new audit is added to `ENTRIES` and, if it runs on windows, to `offline_audit.run.AUDITS`; every
test below then runs over it.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import inspect
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import offline_audit
from monitor import (
    BundleSpec,
    ClassifierFile,
    Decision,
    Feature,
    Fitted,
    Model,
    ProtectedAttribute,
    export_classifier,
    write_bundle,
)
from monitor.traffic.columns import TrafficColumns, group_column
from offline_audit import AuditInputError, Finding, Findings, Window, audit_window
from offline_audit.errors import UnknownColumnError
from offline_audit.run import AUDITS
from tests.traffic_logs import (
    MODEL,
    START,
    outcome_table,
    traffic_table,
    write_outcomes,
    write_traffic,
)

# Shared parameters in their order. Data may be positional, options are keyword-only.
DATA = (
    *("model", "features", "groups", "decisions", "distances", "labels", "scores", "units"),
    "counts",
)
# Options with the default that every audit gives them; `ANY` where defaults depend on the audit.
ANY = object()
OPTIONS = {
    "by": None,
    "metrics": ANY,
    "criterion": "statistical_parity",
    "criteria": ANY,
    "reference": None,
    "expected_groups": None,
    "tolerance": 0.0,
    "alternative": "two-sided",
    "map": "joint_quantile",
    "cost": ANY,
    "threshold": None,
    "alpha": 0.05,
    "confidence_level": 0.95,
    "n_resamples": ANY,
    "n_bootstrap": None,
    "n_counterparts": 8,
    "max_rows": ANY,
    "smallest_group": ANY,
    "smallest_cell": 10,
    "smallest_expected": 5,
    "explain": True,
    "correction": "bh",
    "seed": 0,
    "progress": None,
}
# What an option that every adapter takes is called.
PASSED_TO_ADAPTERS = {"model", "alpha", "seed", "progress"}
# Options of the adapters that no other audit has.
OF_ADAPTERS = {"projection": {"jointly"}, "fliptest": {"manifest"}}

RNG = np.random.default_rng(5)
N = 400
GROUPS = np.repeat(["a", "b"], N // 2)
DECISIONS = (RNG.random(N) < np.where(GROUPS == "a", 0.3, 0.6)).astype(int)
LABELS = (RNG.random(N) < 0.5).astype(int)
FEATURES = RNG.normal(size=(N, 2)) + (GROUPS == "b")[:, None]
DISTANCES = np.abs(RNG.normal(size=N))
AGES = RNG.normal(40, 10, N)
SCORES = RNG.random(N)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The function of an audit.

    Attributes:
        data: Arguments of a small valid call.
        own: Parameters that no other audit has.
        quick: Options that make a call fast.
        long: Arguments that make a call long enough to report progress.
        compares_groups: Whether it compares groups.
    """

    data: dict[str, Any]
    own: set[str] = field(default_factory=set)
    quick: dict[str, Any] = field(default_factory=dict)
    long: dict[str, Any] = field(default_factory=dict)
    compares_groups: bool = True


ENTRIES = {
    "permutation_test": Entry(
        data={"groups": GROUPS, "decisions": DECISIONS, "metrics": "selection_rate"},
        own={"exchange", "studentized", "score_limits", "bins"},
        quick={"n_resamples": 99},
        long={"metrics": "mean_score", "scores": SCORES},
    ),
    "selection_table": Entry(data={"groups": GROUPS, "decisions": DECISIONS}),
    "scoring_table": Entry(data={"groups": GROUPS, "scores": SCORES}),
    "correlation_test": Entry(
        data={"attribute_values": AGES, "values": DECISIONS},
        own={"attribute_values", "values", "attribute", "of", "studentized"},
        quick={"n_resamples": 99},
        compares_groups=False,
    ),
    "projection_test": Entry(
        data={"groups": GROUPS, "decisions": DECISIONS, "distances": DISTANCES},
        own={"favoured", "law", "bandwidth"},
    ),
    "flip_test": Entry(
        data={"model": lambda rows: rows[:, 0] > 0, "features": FEATURES, "groups": GROUPS},
        own={"columns", "favourable", "label_counts", "protected"},
        quick={"n_resamples": 19, "n_bootstrap": 5},
    ),
}


def called(name: str, **changes: Any) -> Any:
    """Result of a small call of an audit, with some arguments changed."""
    entry = ENTRIES[name]
    return getattr(offline_audit, name)(**{**entry.data, **entry.quick, **changes})


def parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(function).parameters)


def entry_parameters() -> Iterator[tuple[str, str]]:
    for name in ENTRIES:
        for parameter in parameters(getattr(offline_audit, name)):
            yield name, parameter


def test_every_public_audit_is_under_the_contract():
    suffixes = ("_test", "_table", "_search")
    assert {name for name in offline_audit.__all__ if name.endswith(suffixes)} == ENTRIES.keys()


@pytest.mark.parametrize("name", ENTRIES)
def test_parameters_have_the_shared_names_in_the_shared_order(name):
    names = [n for n in parameters(getattr(offline_audit, name)) if n not in ENTRIES[name].own]
    assert set(names) <= {*DATA, *OPTIONS}
    order = (*DATA, *OPTIONS)
    assert names == sorted(names, key=order.index)


@pytest.mark.parametrize("name", ENTRIES)
def test_own_parameters_exist_and_are_not_shared_ones(name):
    own = ENTRIES[name].own
    assert own <= parameters(getattr(offline_audit, name)).keys()
    assert not own & {*DATA, *OPTIONS}


@pytest.mark.parametrize("name", ENTRIES)
def test_options_are_keyword_only_and_have_the_shared_default(name):
    for parameter in parameters(getattr(offline_audit, name)).values():
        if parameter.name not in OPTIONS:
            continue
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
        default = OPTIONS[parameter.name]
        assert default is ANY or parameter.default == default


@pytest.mark.parametrize("name", ENTRIES)
def test_audits_with_a_p_value_take_level_and_seed(name):
    given = parameters(getattr(offline_audit, name)).keys()
    if name.endswith("_test"):
        assert {"alpha", "seed"} <= given
    if "n_resamples" in given:
        assert "progress" in given


@pytest.mark.parametrize("audit", AUDITS)
def test_adapters_take_a_window_and_shared_options(audit):
    given = parameters(import_module(AUDITS[audit]).findings)
    names = list(given)
    assert names[:2] == ["window", "by"]
    assert given["by"].default is None
    assert set(names) >= PASSED_TO_ADAPTERS
    for parameter in names[2:]:
        assert given[parameter].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameter in {*OPTIONS, "model", *OF_ADAPTERS.get(audit, set())}
        default = OPTIONS.get(parameter, ANY)
        assert default is ANY or given[parameter].default == default


INVALID: dict[str, tuple[Any, ...]] = {
    "alpha": (0, 1, -0.1, float("nan"), "0.05", None, True),
    "confidence_level": (0.2, 1, float("nan"), "0.95"),
    "n_resamples": (-1, 1.5, "many", float("nan")),
    "n_bootstrap": (-1, 1.5, "many"),
    "seed": (-1, 0.5, "seed", None),
    "tolerance": (-0.1, float("nan"), "small"),
    "smallest_cell": (-1, 0.5, "few"),
    "criterion": ("parity", 3),
    "alternative": ("both", 3),
    "groups": (None, 3, [["a", "b"]]),
    "scores": (3, ["high"] * N, [float("inf")] * N, SCORES[:-1]),
    "decisions": (3, "yes", [2] * N, DECISIONS[:-1]),
    "labels": (3, [2] * N, LABELS[:-1]),
    "units": ([[1, 2]], np.arange(N - 1)),
    "by": ("other", ("sex", "other"), []),
}


@pytest.mark.parametrize(
    ("name", "parameter"), [case for case in entry_parameters() if case[1] in INVALID]
)
def test_invalid_arguments_are_refused_by_name(name, parameter):
    """The error starts with the parameter's name, or names the arrays that differ in length."""
    for value in INVALID[parameter]:
        with pytest.raises(AuditInputError) as error:
            called(name, **{parameter: value})
        assert parameter in str(error.value).partition(";")[0]


@pytest.mark.parametrize(
    ("name", "parameter"),
    [case for case in entry_parameters() if case[1] in ("n_resamples", "seed")],
)
def test_whole_floats_are_whole_numbers(name, parameter):
    number = ENTRIES[name].quick.get(parameter, 7)
    with_float = called(name, **{parameter: float(number)})
    assert with_float.to_dict() == called(name, **{parameter: number}).to_dict()


@pytest.mark.parametrize("parameter", ["alpha", "confidence_level", "seed"])
def test_the_same_mistake_gives_the_same_message(parameter):
    for value in INVALID[parameter]:
        messages = set()
        for name, other in entry_parameters():
            if other == parameter:
                with pytest.raises(AuditInputError) as error:
                    called(name, **{parameter: value})
                messages.add(str(error.value))
        assert len(messages) == 1


@pytest.mark.parametrize("name", [n for n, entry in ENTRIES.items() if entry.compares_groups])
@pytest.mark.parametrize("unknown", [None, float("nan"), ""])
def test_rows_without_a_group_count_for_no_group(name, unknown):
    """None, NaN and the empty string mean the same in every audit."""
    groups = GROUPS.astype(object)
    groups[::4] = unknown
    known = np.ones(N, bool)
    known[::4] = False
    data = {
        key: value[known]
        for key, value in ENTRIES[name].data.items()
        if isinstance(value, np.ndarray)
    }
    assert effects(called(name, groups=groups)) == effects(called(name, **data))


def effects(result: Any) -> Any:
    """Estimates of a result, whatever its audit calls them."""
    if isinstance(result, offline_audit.SelectionTable) and result.median is None:
        return [(row.group, row.rows, row.selected) for row in result.table if row.group]
    if isinstance(result, offline_audit.SelectionTable):
        # The median is that of all rows, with a group or without.
        return [(row.group, row.rows) for row in result.table if row.group]
    if isinstance(result, offline_audit.ProjectionResult):
        return result.statistic, result.p_value
    if isinstance(result, offline_audit.FlipTestResult):
        return [(d.source, d.rows, d.gross, d.net) for d in result.directions]
    return [(c.effect, c.p_value) for c in result]


@pytest.mark.parametrize("name", [n for n, entry in ENTRIES.items() if entry.compares_groups])
def test_the_head_of_a_result_counts_unknown_groups_and_labels(name):
    groups = GROUPS.astype(object)
    groups[::4] = None
    assert "Rows: 400; unknown: group 100 (25.0%)." in head_of(called(name, groups=groups))
    if "labels" not in parameters(getattr(offline_audit, name)):
        return
    labels = LABELS.astype(float)
    labels[::8] = np.nan
    within = {"criterion": "equal_opportunity", "metrics": "tpr"}
    options = {k: v for k, v in within.items() if k in parameters(getattr(offline_audit, name))}
    result = called(name, groups=groups, labels=labels, **options)
    assert "unknown: group 100 (25.0%), label 50 (12.5%)." in head_of(result)
    assert result.to_dict()["unknown"] == {"rows": N, "groups": {"group": 100}, "labels": 50}


@pytest.mark.parametrize("name", ENTRIES)
def test_the_head_of_a_result_says_if_nothing_is_unknown(name):
    assert "Rows: 400; unknown: none." in head_of(called(name))


def head_of(result: Any) -> str:
    """Text of a result above its table or first note, without line breaks."""
    return " ".join(str(result).split("──")[0].split())


@pytest.mark.parametrize("name", ENTRIES)
def test_results_print_plot_and_become_json(name):
    result = called(name)
    assert str(result).strip()
    assert result._repr_html_().startswith("<")
    assert result.plot() is not None
    assert json.loads(json.dumps(result.to_dict())) == result.to_dict()


SEVERAL = {
    "permutation_test": {"metrics": ["selection_rate", "tpr"], "labels": LABELS},
    "flip_test": {},
}


@pytest.mark.parametrize("name", SEVERAL)
def test_several_raw_p_values_have_a_note_whether_or_not_one_is_small(name):
    equal = {"groups": np.tile(["a", "b"], N // 2)}
    for result in (called(name, **SEVERAL[name]), called(name, **SEVERAL[name], **equal)):
        note = result.to_dict()["note"]
        assert "not corrected for the number of tests (2)" in note
        assert "scipy.stats.false_discovery_control" in note
        assert note in " ".join(str(result).split())
        assert note in result._repr_html_()
        legend = [text.get_text() for text in result.plot().legends[0].get_texts()]
        assert any("not corrected for the number of tests" in text for text in legend)


@pytest.mark.parametrize("name", [name for name in ENTRIES if name.endswith("_test")])
def test_every_p_value_says_how_it_is_computed(name):
    result = called(name)
    data = result.to_dict()
    parts = data.get("comparisons") or data.get("directions") or [data]
    mid = name in ("permutation_test", "correlation_test")
    for part in parts:
        assert part["p_value"] is not None
        assert part["p_value_kind"].startswith("mid-p") == mid
    shown = " ".join(str(result).split())
    assert ("mid-p" in shown) == mid
    assert ("mid-p" in result._repr_html_()) == mid


def test_several_gaps_have_a_note_although_nothing_is_rejected():
    result = called("projection_test", groups=np.resize(["a", "b", "c"], N))
    assert not result.rejected
    assert "Each interval holds for its gap alone" in result.to_dict()["note"]
    assert result.note in str(result)
    assert called("projection_test").note is None


@pytest.mark.parametrize("name", ENTRIES)
def test_results_are_frozen_and_repeatable(name):
    result = called(name)
    with pytest.raises((dataclasses.FrozenInstanceError, AttributeError)):
        setattr(result, dataclasses.fields(result)[0].name, None)
    assert json.dumps(called(name).to_dict()) == json.dumps(result.to_dict())


@pytest.mark.parametrize("name", ENTRIES)
def test_input_is_not_changed(name):
    arrays = {k: v.copy() for k, v in ENTRIES[name].data.items() if isinstance(v, np.ndarray)}
    called(name)
    for key, array in arrays.items():
        assert np.array_equal(array, ENTRIES[name].data[key])


@pytest.mark.parametrize(
    "name", [name for name, parameter in entry_parameters() if parameter == "progress"]
)
def test_progress_receives_task_steps_done_and_steps_in_all(name):
    reports: list[tuple[str, int, int]] = []
    called(name, progress=lambda *report: reports.append(report), **ENTRIES[name].long)
    assert reports
    for task, done, total in reports:
        assert isinstance(task, str)
        assert 0 <= done <= total
    steps = [done for _, done, _ in reports]
    assert steps == sorted(steps)


# Windows: the same log for every audit.


class Scores(nn.Module):
    """The sum of two features."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return features.sum(1)


SPEC = BundleSpec(
    model=Model(name=MODEL, version="1"),
    classifier=ClassifierFile(output="logit"),
    features=(Feature(name="income", kind="numeric"), Feature(name="savings", kind="numeric")),
    one_hot_groups=(),
    protected_attributes=(
        ProtectedAttribute(name="sex", groups=("female", "male")),
        ProtectedAttribute(name="ethnicity", groups=("a", "b", "c")),
    ),
    decision=Decision(favourable=1, class_names=("no", "yes")),
    fitted=Fitted.now(seed=0, rows=0),
)
QUICK = {"fliptest": {"n_resamples": 39, "n_bootstrap": 10}}


def write_log(
    folder: Path,
    sexes: tuple[str, str] = ("female", "male"),
    ethnicities: tuple[str | None, str | None] = ("a", "b"),
    *,
    selective: bool = False,
    labelled_anyway: int = 0,
) -> Path:
    """A log, outcomes and a bundle; women get the favourable decision less often.

    With selective labels, only rows with the favourable decision have one, and some first others.
    """
    rng, n = np.random.default_rng(3), 1_200
    female = rng.random(n) < 0.5
    features = rng.normal(np.where(female, -0.6, 0.4)[:, None], 1.0, (n, 2)).astype(np.float32)
    logit = features.sum(1)
    time = (START - dt.datetime.fromtimestamp(0, dt.UTC)) // dt.timedelta(microseconds=1)
    common = {"request_id": [f"r{i:05d}" for i in range(n)], "row": np.zeros(n, int)}
    times = time + np.arange(n) * 1_000_000
    traffic = {
        **common,
        "time": times,
        "score": 1 / (1 + np.exp(-logit)),
        "logit": logit,
        "decision": (logit >= 0).astype("i1"),
        "boundary_distance": np.abs(logit) / np.sqrt(2),
        "action": ["none"] * n,
        "income": features[:, 0],
        "savings": features[:, 1],
    }
    repaid = (rng.random(n) < 1 / (1 + np.exp(-logit))).astype(int).tolist()
    hidden = np.flatnonzero(logit < 0)[labelled_anyway:] if selective else np.zeros(0, int)
    outcomes = {
        **common,
        "label": [None if i in set(hidden.tolist()) else label for i, label in enumerate(repaid)],
        group_column("sex"): np.where(female, *sexes),
        group_column("ethnicity"): [ethnicities[i] for i in rng.integers(2, size=n)],
        "observed_at": times,
        "received_at": times,
        "source": ["file"] * n,
    }
    columns = TrafficColumns.of(SPEC)
    write_traffic(folder / "log", traffic_table(traffic, columns), columns=columns)
    write_outcomes(folder / "outcomes", outcome_table(outcomes, ("sex", "ethnicity")))
    write_bundle(folder / "bundle", SPEC, {"classifier.pt2": export_classifier(Scores(), 2)})
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_log(tmp_path_factory.mktemp("contract"))


def audited(folder: Path, audit: str, by: Any = "sex", **options: Any) -> Findings:
    """Findings of one audit on the log of a folder."""
    with Window.read(folder / "log", folder / "outcomes") as window:
        return audit_window(
            window,
            {audit: QUICK.get(audit, {})},
            by,
            model=folder / "bundle",
            **{"progress": False, **options},
        )


@pytest.fixture(scope="module")
def findings(folder) -> dict[str, Findings]:
    return {audit: audited(folder, audit) for audit in AUDITS}


@pytest.mark.parametrize("audit", AUDITS)
def test_effects_are_signed_first_group_against_second(findings, audit):
    """Women are disadvantaged, so every rate of favourable decisions is lower for them."""
    measured = [f for f in findings[audit] if f.effect is not None]
    assert measured
    for finding in measured:
        assert finding.unit
        assert finding.direction is not None
        assert len(finding.groups) == 2
        assert finding.direction.startswith(finding.groups[0])
        assert finding.effect is not None
        assert finding.interval is not None
        low, high = finding.interval
        assert low <= finding.effect <= high
    rates = [f for f in measured if f.metric in ("selection_rate", "statistical_parity", "flips")]
    assert rates
    for finding in rates:
        assert finding.effect is not None
        assert (finding.effect < 0) == (finding.groups[0] == "female")


@pytest.mark.parametrize("audit", AUDITS)
def test_a_difference_says_alone_who_is_disadvantaged_by_how_much_and_how_sure(findings, audit):
    differences = [f for f in findings[audit] if f.disadvantaged and f.outcome == "difference"]
    assert differences
    for finding in differences:
        assert finding.disadvantaged == "female"
        quoted = " ".join(finding.sentences)
        for word in (*finding.groups, "%", "percentage points", "95% interval"):
            assert word in quoted
        printed = " ".join(str(finding).split())
        assert quoted in printed
        assert "Disadvantaged: female." in printed
        assert finding.question in printed
        assert "With 80% power the test detects" in printed
        assert all(f"{group} {rows:,}" in printed for group, rows in finding.rows.items())


@pytest.mark.parametrize("audit", AUDITS)
def test_the_table_of_findings_names_the_disadvantaged_group_and_quotes_differences(
    findings, audit
):
    printed = str(findings[audit])
    header = next(line for line in printed.splitlines() if line.startswith("audit "))
    assert "disadvantaged" in header
    explanations = {"fliptest": "features", "projection": "smallest fair change"}
    assert explanations.get(audit, "disadvantaged") in header
    for finding in findings[audit]:
        assert (finding.explanation is not None) == (audit in explanations)
        if finding.explanation:
            assert finding.explanation in printed
    one = findings[audit].differences[0]
    assert " ".join(one.sentences) in " ".join(printed.split())


def test_explanations_name_features_and_the_smallest_fair_change(findings):
    for finding in findings["fliptest"]:
        assert {part.split()[0] for part in finding.explanation.split(", ")} <= {
            "income",
            "savings",
        }
    for finding in findings["projection"]:
        rows = finding.evidence["explanation"]["rows_moved"]
        assert f"{rows:,.1f} of 1,200" in finding.explanation or "about" in finding.explanation
        assert f"alters {finding.explanation}: " in finding.sentences[-1]
        assert "from the unfavourable decision to the favourable decision" in finding.sentences[-1]


def test_without_a_difference_no_group_is_called_disadvantaged(findings):
    (finding, *_) = findings["permutation"]
    equal = dataclasses.replace(finding, adjusted_p_value=0.4)
    printed = str(Findings.corrected([dataclasses.replace(finding, p_value=0.4)]))
    assert "disadvantaged" not in printed
    assert "No difference shown does not mean that there is none" in printed
    assert "No difference shown at α = 0.05" in str(equal)
    assert "Disadvantaged" not in str(equal)


@pytest.mark.parametrize("audit", AUDITS)
def test_findings_name_audit_question_rows_and_seed(findings, audit):
    for finding in findings[audit]:
        assert finding.audit == audit
        assert finding.question.endswith("?")
        assert finding.attributes == ("sex",)
        assert set(finding.groups) <= finding.rows.keys()
        assert finding.seed == 0
        assert (finding.p_value is None) == (finding.outcome == "cannot be determined")
        assert (finding.reason is None) == (finding.p_value is not None)


@pytest.mark.parametrize("audit", AUDITS)
def test_findings_count_unknown_groups_and_labels_in_their_head(tmp_path, audit):
    folder = write_log(tmp_path, ethnicities=("a", None), selective=True)
    (finding, *_) = result = audited(folder, audit, ["ethnicity", "sex"])
    assert finding.unknown is not None
    assert finding.unknown.rows == 1_200
    assert finding.unknown.labels is not None
    unknown, unlabelled = finding.unknown.groups["ethnicity"], finding.unknown.labels
    assert 500 < unknown < 700
    assert 500 < unlabelled < 1_000
    counts = f"group of ethnicity {unknown:,} ({unknown / 12:.1f}%), label {unlabelled:,}"
    assert counts in head_of(result)
    assert counts in head_of(finding)
    assert json.loads(json.dumps(finding.to_dict()))["unknown"]["labels"] == unlabelled


# Selection and scoring rates use no labels.
@pytest.mark.parametrize("audit", [audit for audit in AUDITS if audit != "selection"])
def test_selective_labels_but_for_one_row_cannot_be_determined(tmp_path, audit):
    folder = write_log(tmp_path, selective=True, labelled_anyway=1)
    within_labels = (
        {"metrics": ["tpr"]} if audit == "permutation" else {"criteria": ["equal_opportunity"]}
    )
    with Window.read(folder / "log", folder / "outcomes") as window:
        options = {audit: {**QUICK.get(audit, {}), **within_labels}}
        result = audit_window(window, options, "sex", model=folder / "bundle", progress=False)
    assert len(result) > 0
    for finding in result:
        assert finding.outcome == "cannot be determined"
        assert "not identified" in (finding.reason or "")


@pytest.mark.parametrize("audit", AUDITS)
def test_the_smallest_detectable_effect_is_stated_for_each_direction(findings, audit):
    tested = [finding for finding in findings[audit] if finding.p_value is not None]
    assert tested
    for finding in tested:
        assert finding.smallest_detectable_effect is not None
        down, up = finding.smallest_detectable_effect
        assert down is None or down < 0
        assert up is None or up > 0
        one_sided = dataclasses.replace(finding, smallest_detectable_effect=(None, 0.083))
        assert "and none downwards; a smaller effect may exist" in " ".join(str(one_sided).split())
        neither = dataclasses.replace(finding, smallest_detectable_effect=(None, None))
        assert "No effect is detected with 80% power" in str(neither)
        assert "With 80% power" not in str(neither)


@pytest.mark.parametrize("audit", AUDITS)
def test_findings_print_plot_and_become_json(findings, audit):
    result = findings[audit]
    assert result.plot() is not None
    for shown in (result, *result):
        assert str(shown).strip()
        assert shown._repr_html_().startswith("<")
        assert json.loads(json.dumps(shown.to_dict())) == shown.to_dict()


@pytest.mark.parametrize("audit", AUDITS)
def test_a_tuple_in_by_means_the_crossing(folder, audit):
    """An audit that cannot cross attributes says so instead of running something else."""
    if audit == "fliptest":
        with pytest.raises(AuditInputError, match="by: a tuple means the crossing"):
            audited(folder, audit, ("sex", "ethnicity"))
        return
    for finding in audited(folder, audit, ("sex", "ethnicity")):
        assert finding.attributes == ("sex", "ethnicity")
        assert all(" × " in group for group in finding.groups)


@pytest.mark.parametrize("audit", ["permutation", "selection", "projection"])
def test_a_crossing_without_known_groups_cannot_be_determined(tmp_path, audit):
    folder = write_log(tmp_path, ethnicities=(None, None))
    for finding in audited(folder, audit, ("sex", "ethnicity")):
        assert finding.outcome == "cannot be determined"
        assert finding.reason == "At least two groups of sex × ethnicity are needed; none is known."


@pytest.mark.parametrize("audit", AUDITS)
def test_a_list_in_by_means_one_attribute_after_the_other(folder, audit):
    listed = audited(folder, audit, ["ethnicity", "sex"])
    attributes = [finding.attributes for finding in listed]
    assert list(dict.fromkeys(attributes)) == [("ethnicity",), ("sex",)]


@pytest.mark.parametrize("audit", AUDITS)
def test_an_unknown_attribute_is_named(folder, audit):
    with pytest.raises(UnknownColumnError, match=r"'age'.*sex"):
        audited(folder, audit, "age")


@pytest.mark.parametrize("audit", AUDITS)
def test_one_known_group_cannot_be_determined(tmp_path, audit):
    result = audited(write_log(tmp_path, ("female", "female")), audit)
    assert len(result) > 0
    for finding in result:
        assert finding.outcome == "cannot be determined"
        assert finding.reason == "At least two groups of sex are needed; only female is known."


@pytest.mark.parametrize("audit", [name for name in AUDITS if name != "selection"])
def test_selective_labels_cannot_be_determined_and_more_rows_do_not_help(tmp_path, audit):
    """The reason must not read as if there were too few rows."""
    folder = write_log(tmp_path, selective=True)
    within_labels = (
        {"metrics": ["tpr"]} if audit == "permutation" else {"criteria": ["equal_opportunity"]}
    )
    with Window.read(folder / "log", folder / "outcomes") as window:
        options = {audit: {**QUICK.get(audit, {}), **within_labels}}
        result = audit_window(window, options, "sex", model=folder / "bundle", progress=False)
    assert len(result) > 0
    for finding in result:
        assert finding.outcome == "cannot be determined"
        assert finding.reason is not None
        assert "not identified" in finding.reason
        assert "more rows of this kind do not help" in finding.reason
    assert "enough data" not in str(result)


@pytest.mark.parametrize("audit", AUDITS)
def test_findings_report_progress(folder, audit):
    reports: list[tuple[str, int, int]] = []
    audited(folder, audit, progress=lambda *report: reports.append(report))
    assert reports
    assert all(done <= total for _, done, total in reports)


def test_a_finding_has_three_outcomes():
    finding = Finding(
        audit="permutation",
        question="",
        attributes=("sex",),
        groups=("a", "b"),
        metric="tpr",
        rows={},
        effect=None,
        interval=None,
        statistic=None,
        p_value=None,
        smallest_detectable_effect=None,
        reason=None,
        seed=0,
        evidence={},
    )
    outcomes = [dataclasses.replace(finding, p_value=p).outcome for p in (0.01, 0.5, None)]
    assert outcomes == ["difference", "no difference shown", "cannot be determined"]
