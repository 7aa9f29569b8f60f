"""A small bundle and a sidecar that most live tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from benchmarks.peers import PeerUnavailableError, peer_python
from monitor import Decision, FitData, FitSpec, Judge, Model, World, fit, train_proxy_biased
from monitor.fitting.spec import Output, ProtectedColumn
from monitor.scoring.baseline import Signal
from tests.live.log_sidecar import uncompiled_bundle
from tests.live.sidecar import MODEL, VERSION, Fitted, Sidecar, sidecar

# Signal and alpha of each attribute's verdict, chosen so that both verdicts are common.
RULES: dict[str, tuple[Signal, float]] = {
    "sex": ("expected_change", 0.1),
    "ethnicity": ("prediction_sensitivity", 0.2),
}
POLICY = {
    "action": "flag",
    "attributes": {name: {"signal": s, "alpha": alpha} for name, (s, alpha) in RULES.items()},
}


@pytest.fixture(scope="session")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    """A bundle of the lending world, for both of its protected attributes."""
    world = World()
    people = world.people(4_000, seed=5)
    spec = FitSpec(
        model=Model(name=MODEL, version=VERSION),
        classifier=Output(output="logit"),
        features=world.features,
        one_hot_groups=world.one_hot_groups,
        decision=Decision(class_names=("refused", "granted")),
        protected_attributes=tuple(
            ProtectedColumn(column=a.name, **a.model_dump()) for a in world.attributes
        ),
    )
    classifier = train_proxy_biased(world.people(6_000, seed=1), seed=0)
    data = FitData(features=people.features, groups=people.groups)
    path = tmp_path_factory.mktemp("fitted") / "bundle"
    bundle = fit(classifier, data, spec, path).bundle
    return Fitted(
        path=path,
        digest=bundle.manifest_sha256,
        judge=Judge.load(bundle),
        rows=world.people(10_000, seed=6).features,
    )


@pytest.fixture(scope="session")
def serving(fitted: Fitted, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    """A sidecar that flags; tests share it, so none may stop it."""
    config = {"policy": POLICY, "server": {"max_message_bytes": 2 << 20}}
    with sidecar(fitted, tmp_path_factory.mktemp("serving"), config) as running:
        yield running


@pytest.fixture(scope="session")
def channel(serving: Sidecar) -> Iterator[grpc.Channel]:
    """A channel to the shared sidecar."""
    with grpc.insecure_channel(serving.grpc) as opened:
        yield opened


@pytest.fixture
def peer(skip_or_fail: Callable[[str], None]) -> Callable[[str], Path]:
    """Returns the Python interpreter of a peer's environment."""

    def python_of(name: str) -> Path:
        try:
            return peer_python(name)
        except PeerUnavailableError as error:
            skip_or_fail(str(error))
            raise

    return python_of


@pytest.fixture(scope="session")
def uncompiled(tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    """A bundle of the lending world without compiled code."""
    return uncompiled_bundle(tmp_path_factory.mktemp("uncompiled"))
