"""FlipTest, its parts, transport maps and corrections."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from monitor import Bundle
from monitor.errors import BundleError
from monitor.scoring.counterfactual import fit_transport_maps
from offline_audit import (
    AuditInputError,
    OfflineAuditError,
    flip_test,
    map_method,
    permutation_test,
    projection_test,
)
from offline_audit.finding import adjusted_p_values, guarantee
from offline_audit.maps.wgan import WganMethod
from offline_audit.window.summary import summarise
from tests.offline_audit.maps.two_groups import mixed
from tests.serving import PEOPLE, WORLD
from tests.snapshots.case import Shown, case, folder
from tests.snapshots.permutation_cases import permuted_rows
from tests.snapshots.projection_cases import projected_rows

_FEW: dict[str, Any] = {"n_resamples": 39, "n_bootstrap": 10, "progress": False}


@functools.cache
def _three_groups() -> tuple[Any, Any]:
    rng = np.random.default_rng(21)
    n = 250
    groups = np.repeat(["a", "b", "c"], n)
    shift = np.repeat([0.0, 1.0, 0.4], n)
    features = np.column_stack(
        [rng.normal(shift), rng.normal(size=3 * n), rng.poisson(2 + shift), rng.random(3 * n)]
    )
    return features.astype(np.float32), groups


def _decide(rows: Any) -> Any:
    rows = np.asarray(rows)
    return (rows[:, 0] + 0.4 * rows[:, 1] + 0.1 * rows[:, 2] > 0.9).astype(int)


def _two_groups() -> tuple[Any, Any]:
    features, groups = _three_groups()
    in_first_two = groups != "c"
    return features[in_first_two], {"sex": groups[in_first_two]}


@case
def flip_two_groups_explained() -> Any:
    return flip_test(_decide, *_two_groups(), **_FEW)


def _first_direction() -> Any:
    return flip_test(_decide, *_two_groups(), **_FEW).direction("a", "b")


@case
def flip_one_direction() -> Any:
    return _first_direction()


@case
def flip_transparency() -> Any:
    return _first_direction().transparency["disadvantaged"]


@case
def flip_marginals() -> Any:
    return _first_direction().marginals["disadvantaged"]


@case
def flip_subgroup() -> Any:
    return _first_direction().subgroups["disadvantaged"]


@case
def flip_three_groups() -> Any:
    return flip_test(_decide, *_three_groups(), explain=False, **_FEW)


@case
def flip_equalized_odds_reference() -> Any:
    features, groups = _three_groups()
    labels = np.random.default_rng(22).integers(0, 2, len(groups))
    return flip_test(
        _decide,
        features,
        groups,
        labels=labels,
        criterion="equalized_odds",
        reference="b",
        explain=False,
        **_FEW,
    )


@case
def flip_exact_map() -> Any:
    return flip_test(
        _decide, *_two_groups(), map="exact", cost="l2", explain=False,
        n_resamples=9, n_bootstrap=5, progress=False,
    )  # fmt: skip


@case
def flip_data_frame() -> Any:
    pd: Any = pytest.importorskip("pandas")
    features, groups = _two_groups()
    rng = np.random.default_rng(23)
    hill = rng.random(len(features)) < np.where(groups["sex"] == "b", 0.7, 0.3)
    frame = pd.DataFrame(
        {
            "town": np.where(hill, "hill", "dale"),
            "income": features[:, 1],
            "years": features[:, 2].astype(int),
        }
    )

    def decide(rows: Any) -> Any:
        return ((rows["town"] == "hill") ^ (rows["income"] > 1.5)).to_numpy().astype(int)

    return flip_test(decide, frame, groups, **_FEW)


@case
def flip_too_few() -> Any:
    features, groups = _two_groups()
    chosen = np.r_[0:250, 250:300]
    return flip_test(_decide, features[chosen], groups["sex"][chosen], **_FEW)


@case
def refusals() -> Any:
    """Messages of mistakes; figures in them are not compared."""
    features, groups = _two_groups()
    rows = projected_rows()
    calls: dict[str, Callable[[], Any]] = {
        "flip reference": lambda: flip_test(_decide, features, groups, reference="z", **_FEW),
        "flip map": lambda: flip_test(_decide, features, groups, map="none", **_FEW),
        "flip cost": lambda: flip_test(_decide, features, groups, cost="l2", **_FEW),
        "flip attributes": lambda: flip_test(
            _decide, features, {"sex": groups["sex"], "age": groups["sex"]}, **_FEW
        ),
        "permutation metric": lambda: permutation_test(metrics="none", **permuted_rows()),
        "permutation needs": lambda: permutation_test(metrics="tpr", groups=["a", "b"]),
        "permutation draws": lambda: permutation_test(
            metrics="tpr", **permuted_rows(), n_resamples=-1
        ),
        "projection length": lambda: projection_test(
            groups=["a", "b"], decisions=[0, 1], distances=[1.0]
        ),
        "projection labels": lambda: projection_test(
            groups=rows["sex"],
            decisions=rows["decisions"],
            distances=rows["distances"],
            criterion="equalized_odds",
        ),
        "correction": lambda: adjusted_p_values([0.1], "none at all"),  # type: ignore[arg-type]
        "log": lambda: summarise(folder() / "absent"),
        "bundle": lambda: Bundle.read(folder() / "absent"),
    }
    return Shown(data={name: _error_message(call) for name, call in calls.items()})


def _error_message(call: Callable[[], Any]) -> str:
    try:
        call()
    except (AuditInputError, OfflineAuditError, BundleError) as error:
        return str(error)
    raise AssertionError("no error was raised")


@case
def corrections() -> Any:
    p_values = [0.001, 0.02, None, 0.03, 0.5, 0.04]
    return Shown(
        text="\n".join(guarantee(method) for method in ("bh", "by", "holm", "none")),
        data={m: adjusted_p_values(p_values, m) for m in ("bh", "by", "holm", "none")},
    )


def _transported_by(name: str) -> Shown:
    groups = mixed(250, unseen=300)
    method = WganMethod(steps=20) if name == "wgan" else map_method(name)
    transported = method.fit(groups.source, groups.target, groups.columns, seed=5).transport(
        groups.unseen, 3
    )
    values = transported.astype(float)
    return Shown(
        data={
            "shape": transported.shape,
            "means": values.mean((0, 1)),
            "spreads": values.std((0, 1)),
            "moved": np.abs(values - groups.unseen).mean((0, 1)),
            "first": values[:, :3],
        }
    )


for _name in ("joint_quantile", "quantile", "gaussian", "sliced", "entropic", "exact", "wgan"):
    _function = functools.partial(_transported_by, _name)
    _function.__name__ = f"map_{_name}"  # type: ignore[attr-defined]
    case(_function)


@case
def map_monitor() -> Any:
    """The maps of a bundle."""
    maps = fit_transport_maps(
        PEOPLE.features, PEOPLE.groups["sex"], WORLD.features, WORLD.one_hot_groups, 2
    )
    rows = torch.from_numpy(PEOPLE.features[:50])
    uniforms = torch.full((50, maps.n_uniforms), 0.5)
    forward, backward = (
        maps.apply(rows, *direction, uniforms).double() for direction in ((0, 1), (1, 0))
    )
    return Shown(
        data={
            "there": forward.mean(0),
            "back": backward.mean(0),
            "first": forward[:2],
            "uniforms": maps.n_uniforms,
        }
    )
