"""`evenhand fit` creates a bundle from a user's files, and rejects invalid ones."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from monitor import (
    Bundle,
    FitData,
    FitSpec,
    Judge,
    Model,
    World,
    decide,
    export_classifier,
    fit,
    read_data,
    read_spec,
    write_bundle,
)
from monitor.errors import BundleError, ClassifierError, FitError
from monitor.fitting.parts import disjoint_parts
from monitor.fitting.spec import Output, ProtectedColumn
from tests.commands import evenhand
from tests.monitor.fitting.conftest import WORLD, columns


@pytest.fixture(scope="module")
def fitted(user_files, tmp_path_factory):
    """The output of the command, and the bundle."""
    out = tmp_path_factory.mktemp("fitted") / "bundle"
    result = evenhand(
        "fit", "--classifier", user_files / "model.pt2", "--data", user_files / "train.parquet",
        "--spec", user_files / "features.yaml", "--out", out, "--no-compile",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    return result, Bundle.read(out)


def test_the_command_prints_the_audit_and_the_digest(fitted):
    result, bundle = fitted
    assert "Training-time audit of my-model version 1" in result.stdout
    assert "of decisions (95% interval over data and fit:" in " ".join(result.stdout.split())
    assert bundle.manifest_sha256 in result.stdout
    assert result.stdout.startswith(bundle.files["audit.txt"].decode())


def test_the_audit_estimates_the_true_flips(fitted):
    _, bundle = fitted
    audit = json.loads(bundle.files["audit.json"])
    fresh = WORLD.people(20_000, seed=43)
    classifier = bundle.classifier()
    decision = partial(decide, classifier.module)
    for name in ("sex", "ethnicity"):
        truth = fresh.true_flips(decision, name).mean()
        assert abs(audit["attributes"][name]["level"]["flip_share"] - truth) < 0.03
    assert audit["attributes"]["sex"]["feature_shares"][0][0] == "career_gap_months"
    proxies = {"district", "sends_remittances", "commute_minutes"}
    assert {name for name, _ in audit["attributes"]["ethnicity"]["feature_shares"][:3]} == proxies
    assert bundle.files["audit.png"].startswith(b"\x89PNG")


def test_the_baseline_keeps_the_interval_of_its_own_maps(fitted):
    _, bundle = fitted
    audit = json.loads(bundle.files["audit.json"])["attributes"]["sex"]
    level = Judge.load(bundle).baseline.levels["sex"]
    assert audit["interval"]["refits"] == 20
    # Three standard errors, of the audit's share and of 2,400 rows of the baseline.
    error = np.hypot(audit["interval"]["standard_error"], np.sqrt(0.25 / 2400))
    assert abs(level.flip_share - audit["interval"]["share"]) < 3 * error
    assert level.flip_share_low != audit["interval"]["low"]


def test_without_refits_the_text_says_that_the_interval_covers_sampling_only(user_files, tmp_path):
    spec = read_spec(user_files / "features.yaml")
    data = read_data(user_files / "train.parquet", spec)
    run = partial(fit, user_files / "model.pt2", data, spec, tmp_path / "b", compiled=False)
    audit = run(n_refits=0).audit
    assert audit.attributes["sex"].interval is None
    assert "over sampling only, not the fit" in " ".join(audit.text().split())
    with pytest.raises(FitError, match="n_refits is 3; it must be 0 or at least 5"):
        run(n_refits=3, replace=True)


def test_the_bundle_scores_new_rows(fitted):
    _, bundle = fitted
    judge = Judge.load(bundle)
    fresh = WORLD.people(3_000, seed=44)
    scores = judge.sensitivity.scores(torch.from_numpy(fresh.features))
    flips = fresh.true_flips(partial(decide, bundle.classifier().module), "sex")
    flip = scores.attributes["sex"].flip_probability.numpy()
    assert flip[flips].mean() > 0.5 > flip[~flips].mean()
    for signal in ("expected_change", "flip_probability", "prediction_sensitivity"):
        share = (judge.p_values(scores, "sex", signal=signal) <= 0.05).mean()
        # Beta-binomial: 2,400 calibration rows and 3,000 predictions, five standard deviations.
        assert abs(share - 0.05) < 5 * np.sqrt(0.0475 * (1 / 2400 + 1 / 3000))


def test_verify_checks_the_scoring_files(user_files, fitted, tmp_path):
    bundle = fitted[1]
    write_bundle(tmp_path / "good", bundle.manifest, bundle.files)
    result = evenhand("bundle", "verify", tmp_path / "good")
    rows = len(Judge.load(bundle, warn=False).baseline.scores["sex"]["expected_change"])
    assert 2_380 <= rows <= 2_400
    assert f"scores by sex, ethnicity, with a baseline of {rows:,} rows" in result.stdout
    for name, flaw in {"maps.npz": b"x", "inputs.npz": b"x", "baseline.npz": b"x"}.items():
        write_bundle(tmp_path / name, bundle.manifest, {**bundle.files, name: flaw})
        result = evenhand("bundle", "verify", tmp_path / name)
        assert result.exit_code == 2
        assert f"{name} is damaged" in result.stderr
    other = export_classifier(torch.nn.Linear(25, 3), 25)
    write_bundle(tmp_path / "status", bundle.manifest, {**bundle.files, "status.pt2": other})
    result = evenhand("bundle", "verify", tmp_path / "status")
    assert "status.pt2 returns 3 logits for 6 groups" in result.stderr


def test_the_parts_of_the_data_are_disjoint_and_complete():
    parts = disjoint_parts(10_000, seed=3, most_scored=20_000)
    rows = np.concatenate(list(parts.values()))
    assert sorted(rows) == list(range(10_000))
    assert [len(part) for part in parts.values()] == [5_000, 1_000, 2_000, 2_000]


def test_the_same_seed_gives_the_same_bundle_except_its_time(user_files, tmp_path, fitted):
    spec = read_spec(user_files / "features.yaml")
    data = read_data(user_files / "train.parquet", spec)
    again = fit(user_files / "model.pt2", data, spec, tmp_path / "b.tar", compiled=False).bundle
    for name in ("baseline.npz", "maps.npz", "status.pt2", "audit.json"):
        assert again.files[name] == fitted[1].files[name], name


def test_a_bundle_without_scoring_files_says_how_to_create_them(bundle_path):
    with pytest.raises(BundleError, match=r"has no status\.pt2.*evenhand fit"):
        Judge.load(Bundle.read(bundle_path))


def test_rows_without_a_group_are_ignored_for_that_attribute(user_files, tmp_path):
    table: dict[str, Any] = columns(WORLD.people(6_000, seed=45))
    table["sex"] = [None if i % 3 == 0 else g for i, g in enumerate(table["sex"])]
    parquet.write_table(pa.table(table), tmp_path / "train.parquet")
    spec = read_spec(user_files / "features.yaml")
    data = read_data(tmp_path / "train.parquet", spec)
    assert (data.groups["sex"] == -1).sum() == 2_000
    result = fit(user_files / "model.pt2", data, spec, tmp_path / "bundle", compiled=False)
    assert result.audit.attributes["sex"].unknown > 300
    text = " ".join(result.audit.text().split())
    assert "audited rows is not known: it is missing, or the spec excludes it." in text


def test_merged_and_excluded_groups_are_counted_in_the_audit(user_files, tmp_path):
    text = (user_files / "features.yaml").read_text()
    listed = "groups: [ardan, belu, cori, dovar]"
    assert listed in text
    merged = "groups: [ardan, {other: [belu, cori]}]\n    excluded: [dovar]"
    (tmp_path / "spec.yaml").write_text(text.replace(listed, merged))
    spec = read_spec(tmp_path / "spec.yaml")
    data = read_data(user_files / "train.parquet", spec)
    result = fit(user_files / "model.pt2", data, spec, tmp_path / "b", compiled=False, n_refits=0)
    assert result.bundle.manifest.protected_attributes[1].groups == ("ardan", "other")
    audit = json.loads(result.bundle.files["audit.json"])
    assert sum(audit["merged"]["ethnicity"]["other"].values()) > 3_000
    (rows,) = audit["excluded"]["ethnicity"].values()
    printed = " ".join(result.audit.text().split())
    assert "ethnicity 'other' is 'belu' (" in printed
    assert f"'dovar' ({rows:,} rows) of ethnicity. Nothing in this audit" in printed


def test_scores_without_gradients_are_computed_for_any_model(user_files, tmp_path):
    class Stepped(torch.nn.Module):
        def forward(self, features):
            return (features[:, 13] < 5).float() * 2 - 1

    spec = read_spec(user_files / "features.yaml")
    data = read_data(user_files / "train.parquet", spec)
    result = fit(Stepped(), data, spec, tmp_path / "bundle", compiled=False)
    assert "differentiable" in result.audit.missing
    assert "Not computed" in result.audit.text()
    assert result.audit.attributes["sex"].level.flip_share > 0.2
    assert result.audit.attributes["sex"].level.mean is None


def test_a_classifier_that_returns_nan_is_rejected(user_files, tmp_path):
    class Logarithm(torch.nn.Module):
        def forward(self, features):
            return torch.log(features[:, 0] - 1000)

    spec = read_spec(user_files / "features.yaml")
    data = read_data(user_files / "train.parquet", spec)
    with pytest.raises(FitError, match="returns NaN or infinite values on"):
        fit(Logarithm(), data, spec, tmp_path / "bundle", compiled=False)


@pytest.mark.parametrize("visible", [("sex",), ("ethnicity",)])
@pytest.mark.parametrize("output", ["probability", "two_logits"])
def test_the_attribute_may_be_a_feature(tmp_path, visible, output):
    world = World(visible=visible)
    column = 25
    last = {
        "probability": lambda z: z.sigmoid(),
        "two_logits": lambda z: torch.stack([-z / 2, z / 2], dim=1),
    }[output]

    class ByGroup(torch.nn.Module):
        def forward(self, features):
            return last(1.5 - 3 * features[:, column])

    people = world.people(4_000, seed=49)
    spec = FitSpec(
        model=Model(name="a", version="1"),
        classifier=Output(output=output),
        features=world.features,
        one_hot_groups=world.one_hot_groups,
        protected_attributes=tuple(
            ProtectedColumn(column=a.name, **a.model_dump()) for a in world.attributes
        ),
    )
    data = FitData(features=people.features, groups=people.groups)
    audit = fit(ByGroup(), data, spec, tmp_path / "bundle", compiled=False).audit
    # Everyone flips by sex, and by ethnicity: ardan people in every other group, others as ardan.
    assert audit.attributes[visible[0]].level.flip_share > 0.97
    other = next(a.name for a in world.attributes if a.name not in visible)
    assert audit.attributes[other].level.flip_share < 0.01


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (torch.nn.Linear(25, 3), "only binary classifiers"),
        (torch.nn.Sequential(torch.nn.Linear(25, 1), torch.nn.Sigmoid()), "ends in a sigmoid"),
        (torch.nn.Linear(24, 1), "cannot be exported .*; the spec lists 25: income, "),
        (
            export_classifier(torch.nn.Linear(24, 1), 24),
            "the classifier takes 24 columns, but the spec lists 25: .*income.*; remove features",
        ),
        (
            export_classifier(torch.nn.Linear(26, 1), 26),
            "takes 26 columns, but the spec lists 25: .*; add the features that are missing",
        ),
    ],
)
def test_a_classifier_that_contradicts_the_spec_is_rejected(user_files, tmp_path, module, message):
    spec = read_spec(user_files / "features.yaml")
    data = read_data(user_files / "train.parquet", spec)
    with pytest.raises(ClassifierError, match=message):
        fit(module, data, spec, tmp_path / "bundle", compiled=False)


def test_missing_files_and_options_are_named(user_files, tmp_path):
    assert "Missing --classifier, --spec, --out" in evenhand("fit", "--data", "x.parquet").stderr
    spec = read_spec(user_files / "features.yaml")
    with pytest.raises(FitError, match=r"none\.parquet: no such file"):
        read_data(tmp_path / "none.parquet", spec)
    with pytest.raises(FitError, match=r"expected a \.parquet or a \.csv"):
        read_data(tmp_path / "x.xlsx", spec)
    (tmp_path / "bad.parquet").write_bytes(b"hello")
    with pytest.raises(FitError, match=r"bad\.parquet: not a valid"):
        read_data(tmp_path / "bad.parquet", spec)
    data = FitData(features=np.zeros((5, 3), np.float32), groups={})
    with pytest.raises(FitError, match=r"shape \[5, 3\]; the spec lists 25 features"):
        fit(user_files / "model.pt2", data, spec, tmp_path / "bundle", compiled=False)


def test_an_existing_bundle_is_reported_before_any_work(user_files, fitted, tmp_path):
    (tmp_path / "bundle").mkdir()
    spec = read_spec(user_files / "features.yaml")
    with pytest.raises(BundleError, match="already exists"):
        fit(
            b"",
            FitData(features=np.zeros((1, 1), np.float32), groups={}),
            spec,
            tmp_path / "bundle",
        )


def test_data_may_be_a_path_or_a_table(user_files, tmp_path):
    spec = read_spec(user_files / "features.yaml")
    path = user_files / "train.parquet"
    options: dict[str, Any] = {"compiled": False, "n_refits": 0}
    files = [
        fit(user_files / "model.pt2", source, spec, tmp_path / name, **options).bundle.files
        for name, source in (("a", str(path)), ("b", parquet.read_table(path)))
    ]
    assert files[0]["audit.txt"] == files[1]["audit.txt"]


def test_a_torchscript_classifier_is_accepted(user_files, tmp_path):
    from tests.monitor.bundle.test_classifier import scripted

    module = torch.nn.Linear(25, 1)
    torch.nn.init.constant_(module.weight, 1e-4)
    spec = read_spec(user_files / "features.yaml")
    data = read_data(user_files / "train.parquet", spec)
    bundle = fit(scripted(module), data, spec, tmp_path / "bundle", compiled=False).bundle
    assert bundle.manifest.classifier.file == "classifier.pt"
    rows = torch.from_numpy(data.features[:50])
    assert torch.allclose(bundle.classifier().logit(rows), module(rows).reshape(-1), atol=1e-5)


def test_a_constant_classifier_is_reported(user_files, tmp_path, caplog):
    """For example if columns are listed in another order than the classifier expects."""

    class Lenient(torch.nn.Module):
        def forward(self, features: torch.Tensor) -> torch.Tensor:
            return 50 + features[:, :1] / 1e6

    spec = read_spec(user_files / "features.yaml")
    data = read_data(user_files / "train.parquet", spec)
    result = fit(Lenient(), data, spec, tmp_path / "bundle", compiled=False)
    text = " ".join(result.audit.text().split())
    assert (
        "All rows get the same decision, so none can flip. Check that the spec lists the features"
        in text
    )
    reason = "all held-back rows get the same decision, so none could flip"
    assert f"The share is not established: {reason}. On this input, about 0.0% of decisions" in text
    assert "That is low" not in text
    assert not any(attribute.established for attribute in result.audit.attributes.values())
    # Whoever verifies or serves the bundle is told, too.
    verified = evenhand("bundle", "verify", tmp_path / "bundle").stdout
    assert "warning: all probe rows get the same decision; check that the features" in verified
    assert f"warning: the audit established no share of flips: {reason}" in verified
    Judge.load(result.bundle)
    assert f"established no share of flips: {reason}" in caplog.text


def test_the_audit_reports_rates_by_group(fitted):
    """Rates equal those on new people within five standard errors."""
    result, bundle = fitted
    rates = json.loads(bundle.files["audit.json"])["attributes"]["sex"]
    fresh = WORLD.people(20_000, seed=44)
    favoured = decide(bundle.classifier().module, fresh.features)
    for group, name in enumerate(WORLD.attributes[0].groups):
        truth = favoured[fresh.groups["sex"] == group].mean()
        error = (truth * (1 - truth) * (1 / rates["groups"][name] + 1 / 10_000)) ** 0.5
        assert abs(rates["favoured"][name] - truth) < 5 * error
        assert f"{name} {rates['favoured'][name]:.1%}" in " ".join(result.stdout.split())
