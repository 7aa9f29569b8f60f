"""Compiled and uncompiled scores are equal, for every family of classifiers and every input."""

from __future__ import annotations

import copy
import io
import warnings
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from monitor import ClassifierFile
from monitor.bundle.classifier import load_classifier
from monitor.errors import KernelError
from monitor.scoring.compiling import compile_kernel
from monitor.scoring.kernel import Kernel, Target, load_kernel
from monitor.scoring.scores import FIRST_OF_REASON, Reason
from monitor.scoring.sensitivity import Sensitivity
from monitor.scoring.status_model import StatusModel
from tests.families import FAMILIES, PEOPLE, loaded, seeded, sensitivity, spec

HERE = Target.here() or pytest.skip("nothing is compiled here", allow_module_level=True)


def compiled(uncompiled: Sensitivity) -> Kernel:
    return load_kernel(compile_kernel(uncompiled, HERE), HERE, uncompiled)


# A compilation takes most of a minute, so the other families are compiled in the live tests.
QUICK = ("MLP", "embeddings")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=() if name in QUICK else pytest.mark.live) for name in FAMILIES
    ],
)
def pair(request) -> tuple[Sensitivity, Kernel]:
    """A family's joint pass, uncompiled and compiled."""
    uncompiled = sensitivity(loaded(seeded(request.param, seed=5)))
    if request.param == "embeddings":
        # More draws than by default, as `fit` may choose.
        maps = {name: replace(maps, draws=8) for name, maps in uncompiled.maps.items()}
        uncompiled = replace(uncompiled, maps=maps)
    return uncompiled, compiled(uncompiled)


def inputs() -> dict[str, Tensor]:
    people = torch.from_numpy(PEOPLE.features[:1_000])
    generator = torch.Generator().manual_seed(8)
    noise = torch.randn(500, 25, generator=generator) * people.std(0) * 5 + people.mean(0)
    extreme = people[:64].clone()
    values = [0.0, -0.0, 1e-40, -1e-40, 1e-30, 1e12, -1e12, 1e30, -1e30]
    for row, value in enumerate(values):
        extreme[row] = value
    for column in range(25):
        extreme[16 + column, column] = 1e20
    unknown = people[:32].clone()
    for row, value in enumerate([float("nan"), float("inf"), -float("inf")] * 8):
        unknown[row, row] = value
    return {"people": people, "noise": noise, "extreme": extreme, "not numbers": unknown}


INPUTS = inputs()


def size(values: Tensor) -> Tensor:
    """Scale of relative errors: the value itself, or a typical value where it is close to zero.

    For scores the middle of their column, for contributions the largest of their row.
    """
    finite = torch.where(values.isfinite(), values, 0.0).abs()
    if values.dim() == 3:
        return finite.amax(2, keepdim=True).clamp_min(0.01)
    return torch.maximum(finite, finite.quantile(0.5, dim=0).clamp_min(1.0))


def differ(ours: Tensor, theirs: Tensor) -> Tensor:
    """Relative difference of two results; 0 where both are the same infinity or both are NaN."""
    same = (ours == theirs) | (ours.isnan() & theirs.isnan())
    return torch.where(same, 0.0, (ours - theirs).abs() / size(theirs)).nan_to_num(1e9)


def assert_same(result: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor]) -> None:
    for ours, theirs in zip(result, expected, strict=True):
        assert ours.dtype == theirs.dtype
        assert differ(ours, theirs).max() <= 1e-5


@pytest.mark.parametrize("kind", ["people", "noise", "extreme"])
def test_compiled_and_uncompiled_scores_are_equal(pair, kind, request):
    """Within 1e-5, plus ten times the float32 rounding error of the uncompiled scores.

    One comparison with float64 can be close by luck on an extreme row, so the effect of the last
    bit of its features counts as rounding error too.
    """
    uncompiled, kernel = pair
    exact = in_double(seeded(request.node.callspec.params["pair"], seed=5), uncompiled)
    rows = INPUTS[kind]
    # Extreme rows one by one, so that no row affects the scale of another.
    for some in rows.split(1) if kind == "extreme" else [rows]:
        conditioning = effect_of_the_last_bit(uncompiled, some) if kind == "extreme" else ()
        for ours, theirs, truth in zip(
            kernel.joint(some), uncompiled.joint(some), exact.joint(some), strict=True
        ):
            rounding = differ(theirs, truth.to(theirs.dtype)).flatten(1).amax(1)
            if kind == "extreme":
                rounding = rounding.maximum(conditioning[theirs.dim() - 2])
            assert (differ(ours, theirs).flatten(1).amax(1) <= 1e-5 + 10 * rounding).all()
            assert kind == "extreme" or rounding.max() < 1e-4


def effect_of_the_last_bit(uncompiled: Sensitivity, row: Tensor) -> list[Tensor]:
    """Largest change of the scores and of the contributions of one row, over 16 roundings."""
    generator = torch.Generator().manual_seed(9)
    last_bits = torch.randint(-1, 2, (16, row.shape[1]), generator=generator) * 2.0**-23
    before = uncompiled.joint(row)
    # Flags stay flags: a category is read by rounding, and would be the same.
    rounded = [torch.where((row == 0) | (row == 1), row, row * (1 + bits)) for bits in last_bits]
    after = [uncompiled.joint(other) for other in rounded]
    return [
        torch.stack([differ(result[part], before[part]).max() for result in after]).amax()[None]
        for part in range(2)
    ]


def in_double(module: nn.Module, like: Sensitivity) -> Sensitivity:
    """The same classifier and status model in float64."""
    assert isinstance(like.status, StatusModel)
    double, status = module.double(), copy.deepcopy(like.status).double()
    return replace(
        like,
        logit=lambda rows: double(rows.double()).reshape(-1),
        status=lambda rows: status(rows.double()),
        first_layer=None,
    )


def test_rows_with_nan_have_the_same_nan_scores_with_and_without_a_kernel(pair):
    uncompiled, kernel = pair
    rows = INPUTS["not numbers"]
    (result, contributions), (expected, _) = kernel.joint(rows), uncompiled.joint(rows)
    assert torch.equal(result.isnan(), expected.isnan())
    assert contributions[:24].isnan().all()
    assert result[:24, uncompiled.columns.boundary_distance :].isnan().all()
    codes = result[:, uncompiled.columns.unlike]
    assert torch.equal(codes, expected[:, uncompiled.columns.unlike])
    assert (codes[:24] >= Reason.NOT_FINITE * FIRST_OF_REASON).all()
    assert not result[24:].isnan().any()


@pytest.mark.parametrize("batch", [1, 2, 3, 15, 16, 17, 31, 33, 64, 257])
def test_scores_of_a_batch_equal_those_of_single_rows(pair, batch):
    uncompiled, kernel = pair
    rows = INPUTS["people"][:batch]
    packed, contributions = kernel.joint(rows)
    alone = [kernel.joint(row) for row in rows[:5].split(1)]
    joined = torch.cat([p for p, _ in alone]), torch.cat([c for _, c in alone])
    assert_same((packed[:5], contributions[:5]), joined)
    assert_same((packed, contributions), uncompiled.joint(rows))


def test_input_rows_are_not_modified_and_need_not_be_contiguous(pair):
    _, kernel = pair
    rows = INPUTS["people"][:40]
    transposed = rows.T.contiguous().T
    assert not transposed.is_contiguous()
    assert torch.equal(kernel.joint(transposed)[0], kernel.joint(rows)[0])
    before = rows.clone()
    kernel.joint(rows)
    assert torch.equal(rows, before)


@pytest.mark.parametrize(
    "rows",
    [torch.zeros(3, 24), torch.zeros(3, 25).double(), torch.zeros(25), torch.zeros(0, 25)],
    ids=["narrow", "float64", "one dimension", "no rows"],
)
def test_rows_of_another_shape_or_dtype_are_rejected(pair, rows):
    with pytest.raises(ValueError, match="compiled for"):
        pair[1].joint(rows)


def script(module: nn.Module) -> bytes:
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.trace(module, INPUTS["people"][:2]), stream)
    return stream.getvalue()


class Stepped(nn.Module):
    """A comparison has no gradient."""

    def forward(self, features: Tensor) -> Tensor:
        return (features[:, :3] > 1).float().sum(1) - 1.5


@pytest.mark.live
def test_torchscript_compiles():
    torchscript = spec().model_copy(
        update={"classifier": ClassifierFile(file="classifier.pt", output="logit")}
    )
    uncompiled = sensitivity(load_classifier(script(seeded("MLP")), torchscript))
    rows = INPUTS["people"][:200]
    assert_same(compiled(uncompiled).joint(rows), uncompiled.joint(rows))


def test_a_model_without_gradients_and_with_identity_maps_compiles():
    uncompiled = sensitivity(loaded(Stepped()))
    identity_maps = {
        name: replace(
            transport,
            ordered_moves=torch.zeros_like(transport.ordered_moves),
            category_moves=torch.zeros_like(transport.category_moves),
        )
        for name, transport in uncompiled.maps.items()
    }
    uncompiled = replace(uncompiled, maps=identity_maps)
    rows = INPUTS["people"][:50]
    assert_same(compiled(uncompiled).joint(rows), uncompiled.joint(rows))


def test_a_missing_compiler_is_an_error_with_the_reason(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(KernelError, match="no C\\+\\+ compiler"):
        compile_kernel(sensitivity(loaded(seeded("MLP"))), HERE)


def test_a_failure_of_torchs_compiler_is_an_error_with_its_first_line(monkeypatch):
    def fails(*_args: object, **_options: object) -> None:
        raise RuntimeError("an internal error\nwith more lines")

    monkeypatch.setattr("torch._inductor.aoti_compile_and_package", fails)
    with pytest.raises(KernelError, match=r"cannot compile the joint pass: an internal error$"):
        compile_kernel(sensitivity(loaded(seeded("MLP"))), HERE)


def test_a_target_that_this_machine_cannot_run_is_rejected():
    with pytest.raises(KernelError, match="tested before it is stored"):
        compile_kernel(sensitivity(loaded(seeded("MLP"))), Target("2.6.0", HERE.level))
