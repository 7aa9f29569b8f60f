"""Declared encodings equal the output of the scikit-learn transformers they were read from."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
import yaml
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
)

from monitor import FitSpec, encoding_from_sklearn
from monitor.bundle.encoding import Encoding
from monitor.codec import FeatureCodec
from monitor.errors import FitError
from monitor.fitting.tables import encoded_table
from monitor.request import InputTensor
from monitor.settings import ServerConfig
from tests.bundles import small_spec
from tests.raw_people import applications, column_transformer, encoded, raw_spec

ADULT = Path(__file__).resolve().parents[4] / "shared/data/adult/adult.data"
SCALERS = {
    "none": lambda: "passthrough",
    "standard": StandardScaler,
    "uncentred": lambda: StandardScaler(with_mean=False),
    "minmax": lambda: MinMaxScaler(feature_range=(-1, 2), clip=True),
    "maxabs": MaxAbsScaler,
    "robust": RobustScaler,
    "log1p": lambda: FunctionTransformer(np.log1p),
    "log": lambda: make_pipeline(FunctionTransformer(np.log), StandardScaler()),
    "identity": FunctionTransformer,
}
IMPUTERS = {
    "mean": lambda: SimpleImputer(),
    "median": lambda: SimpleImputer(strategy="median", add_indicator=True),
    "frequent": lambda: SimpleImputer(strategy="most_frequent"),
    "constant": lambda: SimpleImputer(strategy="constant", fill_value=7.5, add_indicator=True),
}
ENCODERS = {
    "ignore": lambda: OneHotEncoder(handle_unknown="ignore"),
    "error": OneHotEncoder,
    "first": lambda: OneHotEncoder(drop="first", handle_unknown="ignore"),
    "binary": lambda: OneHotEncoder(drop="if_binary", sparse_output=False),
    "code": lambda: OrdinalEncoder(
        handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-5
    ),
    "scaled code": lambda: make_pipeline(
        OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=9),
        StandardScaler(),
    ),
    "filled": lambda: make_pipeline(
        SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore")
    ),
    "constant": lambda: make_pipeline(
        SimpleImputer(strategy="constant", fill_value="nothing"),
        OneHotEncoder(handle_unknown="infrequent_if_exist"),
    ),
}


def table_of(rows: int, seed: int, *, missing: float, unseen: bool) -> Any:
    """A random table of two numbers and two categories."""
    rng = np.random.default_rng(seed)
    words = ["red", "green", "blue mauve", "Ü"]

    def category(names: list[Any], share: float) -> np.ndarray:
        values = rng.choice(np.array(names, object), rows)
        values[rng.random(rows) < share] = np.nan
        return values

    amount = rng.lognormal(2, 3, rows)
    amount[rng.random(rows) < missing] = np.nan
    return pd.DataFrame(
        {
            "amount": amount,
            "count": rng.integers(1, 9, rows),
            "colour": category([*words, "missing", "new"] if unseen else words, missing),
            "yes": rng.random(rows) < 0.5,
            "level": rng.choice([1.0, 2.0, 3.5, 8.0] if unseen else [1.0, 2.0, 3.5], rows),
        }
    )


def as_sklearn(transformer: Any, frame: Any) -> np.ndarray | None:
    """Output of a transformer in float32; None if it refuses the table."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows = encoded(transformer, frame)
    except ValueError:
        return None
    return rows if np.isfinite(rows).all() else None


def as_declared(transformer: Any, frame: Any) -> np.ndarray | None:
    """Output of the declared encoding; None if it refuses the table."""
    sections = encoding_from_sklearn(transformer)
    read = yaml.safe_load(sections.to_yaml())
    spec = FitSpec.model_validate(
        {
            "model": {"name": "m", "version": "1"},
            "classifier": {"output": "logit"},
            "protected_attributes": [{"name": "a", "column": "group", "groups": ["x", "y"]}],
            **read,
        }
    )
    assert spec.inputs == sections.inputs
    try:
        rows = encoded_table(
            pa.Table.from_pandas(frame), spec.inputs, [feature.name for feature in spec.features]
        )
    except FitError:
        return None
    return rows if np.isfinite(rows).all() else None


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    imputer=st.sampled_from(sorted(IMPUTERS)),
    scaler=st.sampled_from(sorted(SCALERS)),
    number_scaler=st.sampled_from(sorted(SCALERS)),
    encoder=st.sampled_from(sorted(ENCODERS)),
    missing=st.sampled_from([0.0, 0.2]),
    missing_later=st.sampled_from([0.0, 0.2]),
    unseen=st.booleans(),
    remainder=st.sampled_from(["drop", "passthrough"]),
)
def test_a_declared_encoding_equals_scikit_learn_bit_for_bit(
    seed, imputer, scaler, number_scaler, encoder, missing, missing_later, unseen, remainder
):
    pipeline = make_pipeline(IMPUTERS[imputer](), SCALERS[scaler]())
    transformer = ColumnTransformer(
        [
            ("amount", pipeline, ["amount"]),
            ("count", SCALERS[number_scaler](), ["count"]),
            ("colour", ENCODERS[encoder](), ["colour"]),
            ("level", OneHotEncoder(handle_unknown="ignore"), ["level"]),
            ("gone", "drop", ["yes"]),
        ]
        if remainder == "drop"
        else [
            ("amount", pipeline, ["amount"]),
            ("colour", ENCODERS[encoder](), ["colour"]),
            ("rest", OneHotEncoder(drop="if_binary", handle_unknown="ignore"), ["level", "yes"]),
        ],
        remainder=remainder,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            transformer.fit(table_of(60, seed, missing=missing, unseen=False))
        except ValueError:
            # Such as the logarithm of an indicator.
            reject()
    frame = table_of(40, seed + 1, missing=missing_later, unseen=unseen)
    expected, declared = as_sklearn(transformer, frame), as_declared(transformer, frame)
    assert (expected is None) == (declared is None)
    if expected is not None and declared is not None:
        assert np.array_equal(expected, declared)


def test_the_codec_equals_scikit_learn_on_applications():
    """Text, numbers and missing values of requests, as raw tensors and as lists."""
    transformer = column_transformer().fit(applications(500, seed=1).frame())
    people = applications(300, seed=2)
    spec = raw_spec(transformer)
    bundle_spec = spec.bundle_spec("classifier.pt2", spec.features, small_spec().fitted)
    codec = FeatureCodec(bundle_spec, ServerConfig())
    tensors = []
    for name, values in people.columns.items():
        if name == "income":
            numbers = np.array([np.nan if v is None else v for v in values], "<f8")
            tensors.append(InputTensor(name, "FP64", (300, 1), numbers.tobytes()))
        elif name == "age":
            tensors.append(InputTensor(name, "BYTES", (300,), [str(v) for v in values]))
        else:
            tensors.append(InputTensor(name, "BYTES", (300,), values))
    features, raw = codec.decode(tensors)
    assert np.array_equal(features, encoded(transformer, people.frame()))
    encoding = Encoding.of(bundle_spec)
    assert encoding is not None
    assert raw is not None
    assert encoding.as_given(raw[0]) == {name: people.columns[name][0] for name in encoding.names}


def test_a_float32_table_differs_by_rounding_only():
    """scikit-learn computes in float32 there, the declared encoding in float64."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.lognormal(3, 2, 5_000).astype(np.float32)})
    pipeline = make_pipeline(FunctionTransformer(np.log1p), StandardScaler())
    transformer = ColumnTransformer([("a", pipeline, ["a"])]).fit(frame)
    expected, declared = as_sklearn(transformer, frame), as_declared(transformer, frame)
    assert expected is not None
    assert declared is not None
    # Four steps of float32 at values up to 4.
    assert 0 < np.abs(expected - declared).max() < 4 * np.spacing(np.float32(4))


@pytest.mark.parametrize(
    ("transformer", "columns", "message"),
    [
        (KBinsDiscretizer(2, subsample=None), ["count"], "'count': KBinsDiscretizer cannot be"),
        (OneHotEncoder(min_frequency=0.4), ["colour"], "'colour': OneHotEncoder merges infrequent"),
        (FunctionTransformer(np.sqrt), ["count"], "'count': FunctionTransformer of sqrt cannot"),
        (FunctionTransformer(lambda x: x), ["count"], "FunctionTransformer of <lambda> cannot"),
        (make_pipeline(StandardScaler(), SimpleImputer()), ["amount"], "after another transformer"),
        (
            make_pipeline(OneHotEncoder(sparse_output=False), StandardScaler()),
            ["colour"],
            "StandardScaler comes after OneHotEncoder",
        ),
        (SimpleImputer(missing_values=3), ["count"], "another value than NaN"),
        (
            make_pipeline(
                SimpleImputer(strategy="most_frequent", add_indicator=True), OneHotEncoder()
            ),
            ["colour"],
            "encode the raw column",
        ),
    ],
)
def test_an_unknown_transformer_is_refused_by_name(transformer, columns, message):
    made = ColumnTransformer([("part", transformer, columns)])
    made.fit(table_of(60, 1, missing=0.2, unseen=False))
    with pytest.raises(FitError) as raised:
        encoding_from_sklearn(made)
    assert message in str(raised.value)


def test_other_objects_are_refused():
    frame = table_of(60, 1, missing=0, unseen=False)
    once = [("a", StandardScaler(), ["count"])]
    with pytest.raises(FitError, match="not fitted"):
        encoding_from_sklearn(ColumnTransformer(once))
    with pytest.raises(FitError, match="not a Pipeline"):
        encoding_from_sklearn(make_pipeline(ColumnTransformer(once)).fit(frame))
    for path in ("ct.joblib", Path("ct.joblib")):
        with pytest.raises(FitError, match=r"not a path: load it first.*joblib\.load"):
            encoding_from_sklearn(path)
    with pytest.raises(FitError, match="without column names"):
        encoding_from_sklearn(
            ColumnTransformer([("a", StandardScaler(), [0])]).fit(frame[["count"]].to_numpy())
        )
    twice = ColumnTransformer([*once, ("b", MinMaxScaler(), ["count"])]).fit(frame)
    with pytest.raises(FitError, match="'count' is used by more than one transformer"):
        encoding_from_sklearn(twice)

    class Custom(StandardScaler):  # type: ignore[misc]
        """Might do anything."""

    custom = ColumnTransformer([("a", Custom(), ["count"])]).fit(frame)
    with pytest.raises(FitError, match="Custom cannot be declared"):
        encoding_from_sklearn(custom)


@pytest.mark.skipif(not ADULT.exists(), reason="the Adult data are not here")
def test_adult_is_encoded_bit_for_bit():
    names = (
        "age workclass weight education years marital occupation relationship race sex gain loss "
        "hours country income"
    )
    frame = pd.read_csv(ADULT, names=names.split(), skipinitialspace=True, na_values="?")
    numbers, words = ["age", "years", "hours"], ["workclass", "occupation", "country", "marital"]
    log = make_pipeline(FunctionTransformer(np.log1p), StandardScaler())
    transformer = ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), numbers),
            ("money", log, ["gain", "loss"]),
            ("words", OneHotEncoder(handle_unknown="ignore"), words),
            ("binary", OneHotEncoder(drop="if_binary"), ["sex"]),
        ]
    ).fit(frame[:20_000])
    expected, declared = (f(transformer, frame[20_000:]) for f in (as_sklearn, as_declared))
    assert expected is not None
    assert declared is not None
    assert np.array_equal(expected, declared)
