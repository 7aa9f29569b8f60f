"""Model files that contain code run in torch's own loader, and never in ours."""

from __future__ import annotations

import functools
import io
import json
import logging
import pickle
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from monitor.bundle.archive import model_format, sanitize_archive
from monitor.bundle.classifier import load_classifier
from monitor.errors import ClassifierError, UnsafeArchiveError
from tests.bundles import WIDTH, exported_classifier, small_module, small_spec


class Payload:
    """A pickle that makes a folder when it is read: proof that code ran."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> Any:
        import os

        return os.mkdir, (str(self.proof),)


def rewritten(data: bytes, changes: dict[str, Callable[[bytes], bytes]]) -> bytes:
    """An archive with some members changed or added."""
    source, out = zipfile.ZipFile(io.BytesIO(data)), io.BytesIO()
    with zipfile.ZipFile(out, "w") as target:
        for name in [*source.namelist(), *(n for n in changes if n not in source.namelist())]:
            content = source.read(name) if name in source.namelist() else b""
            target.writestr(name, changes.get(name, lambda same: same)(content))
    return out.getvalue()


def in_program(change: Callable[[Any], None]) -> Callable[[bytes], bytes]:
    def apply(data: bytes) -> bytes:
        program = json.loads(data)
        change(program)
        return json.dumps(program).encode()

    return apply


def torch_save(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def sample_inputs(data: bytes, proof: Path) -> bytes:
    return rewritten(
        data, {"archive/data/sample_inputs/model.pt": lambda _: torch_save(Payload(proof))}
    )


def pickled_weight(data: bytes, proof: Path) -> bytes:
    def point_at_pickle(config: Any) -> None:
        config["config"]["0.bias"]["use_pickle"] = True

    return rewritten(
        data,
        {
            "archive/data/weights/model_weights_config.json": in_program(point_at_pickle),
            "archive/data/weights/weight_1": lambda _: torch_save(Payload(proof)),
        },
    )


def pickled_constant(data: bytes, proof: Path) -> bytes:
    def add_constant(config: Any) -> None:
        config["config"]["c"] = {
            "path_name": "opaque_obj_0",
            "is_param": False,
            "use_pickle": True,
            "tensor_meta": None,
        }

    return rewritten(
        data,
        {
            "archive/data/constants/model_constants_config.json": in_program(add_constant),
            "archive/data/constants/opaque_obj_0": lambda _: pickle.dumps(Payload(proof)),
        },
    )


def guard(data: bytes, proof: Path) -> bytes:
    def add_guard(program: Any) -> None:
        program["guards_code"] = [f"__import__('os').mkdir({str(proof)!r}) is None"]

    return rewritten(data, {"archive/models/model.json": in_program(add_guard)})


def shape_expression(data: bytes, proof: Path) -> bytes:
    def change_expression(program: Any) -> None:
        sizes = program["graph_module"]["graph"]["tensor_values"]["linear"]["sizes"]
        code = f"(__import__('os').mkdir({str(proof)!r}), 3)[1]"
        sizes[0] = {"as_expr": {"expr_str": code, "hint": None}}

    return rewritten(data, {"archive/models/model.json": in_program(change_expression)})


def operator(data: bytes, proof: Path) -> bytes:
    def call_mkdir(program: Any) -> None:
        node = program["graph_module"]["graph"]["nodes"][0]
        node["target"] = "torch.os.mkdir"
        node["inputs"] = [{"name": "", "arg": {"as_string": str(proof)}, "kind": 1}]

    return rewritten(data, {"archive/models/model.json": in_program(call_mkdir)})


def argument_name(data: bytes, proof: Path) -> bytes:
    code = f"features=__import__('os').mkdir({str(proof)!r})"

    def rename(program: Any) -> None:
        entry = program["graph_module"]["module_call_graph"][0]
        entry["signature"]["forward_arg_names"] = [code]

    return rewritten(data, {"archive/models/model.json": in_program(rename)})


# What torch 2.13 runs while it loads or first calls a model.
ATTACKS = [sample_inputs, pickled_weight, pickled_constant, guard, shape_expression]
# What torch 2.13 does not run, only because of its syntax or its verifier.
NEAR_MISSES = [operator, argument_name]


@functools.cache
def saved_by_torch() -> bytes:
    """The small classifier as `torch.export.save` writes it, sample inputs and all."""
    program = torch.export.export(
        small_module().eval(),
        (torch.zeros(2, WIDTH),),
        dynamic_shapes=({0: torch.export.Dim("batch")},),
    )
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    return buffer.getvalue()


def load_as_torch_does(data: bytes) -> None:
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.export.load(io.BytesIO(data)).module()(torch.zeros(2, WIDTH))
    except Exception:  # noqa: BLE001, S110 - only the side effect matters
        pass
    finally:
        logging.disable(logging.NOTSET)


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_runs_in_torchs_loader_but_not_in_ours(attack, tmp_path):
    """The first half shows that the attack works in torch's own loader."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    load_as_torch_does(attack(saved_by_torch(), theirs))
    assert theirs.exists()
    try:
        classifier = load_classifier(attack(saved_by_torch(), ours), small_spec())
    except UnsafeArchiveError:
        pass
    else:
        classifier.logit(torch.zeros(2, WIDTH))
    assert not ours.exists()


@pytest.mark.parametrize(
    "attack", [pickled_weight, pickled_constant, shape_expression, *NEAR_MISSES]
)
def test_unsafe_parts_that_inference_needs_are_rejected_by_name(attack, tmp_path):
    with pytest.raises(UnsafeArchiveError, match=r"classifier\.pt2"):
        sanitize_archive(attack(saved_by_torch(), tmp_path / "x"), "classifier.pt2")


@pytest.mark.parametrize("attack", [sample_inputs, guard])
def test_parts_that_inference_does_not_need_are_dropped(attack, tmp_path):
    cleaned = sanitize_archive(attack(saved_by_torch(), tmp_path / "x"), "classifier.pt2")
    expected = load_classifier(exported_classifier(), small_spec())
    result = load_classifier(cleaned, small_spec())
    features = torch.randn(7, WIDTH)
    assert torch.equal(result.logit(features), expected.logit(features))
    assert b"mkdir" not in cleaned


def with_expression(text: str) -> bytes:
    def put(program: Any) -> None:
        sizes = program["graph_module"]["graph"]["tensor_values"]["linear"]["sizes"]
        sizes[0] = {"as_expr": {"expr_str": text, "hint": None}}

    return rewritten(saved_by_torch(), {"archive/models/model.json": in_program(put)})


@pytest.mark.parametrize(
    "text",
    [
        "s0",
        "s0 + 1",
        "Symbol('s31', positive=True, integer=True)",
        "Max(1, 2*s0) // 3",
        "Eq(Mod(s0, 2), 0)",
    ],
)
def test_arithmetic_on_sizes_is_accepted(text):
    assert json.dumps(text).encode() in sanitize_archive(with_expression(text), "x")


@pytest.mark.parametrize(
    "text",
    [
        *("eval('1')", "s0.real", "[1][0]", "Symbol('__import__')", "lambda: 1", "chr(1)", "(s0"),
        *("exec", "{s0}", "s0 if s0 else 1", "(s0 := 1)", "f'{s0}'", "Symbol(*[1])", "b'x'"),
        *("9**9**9", "Pow(9, 9)", "s0 << 99", str(2**64), "s0" + " + s0" * 400),
    ],
)
def test_other_expressions_are_rejected(text):
    with pytest.raises(UnsafeArchiveError, match="could run code"):
        sanitize_archive(with_expression(text), "x")


def test_sanitizing_an_archive_twice_changes_nothing():
    once = sanitize_archive(saved_by_torch(), "x")
    assert sanitize_archive(once, "x") == once


def test_paths_of_the_exporting_machine_are_removed():
    here = str(Path(torch.__file__).parent).encode()
    assert here in saved_by_torch()
    assert here not in exported_classifier()


def test_a_pickle_is_rejected_with_export_instructions():
    for data in (torch_save(small_module()), pickle.dumps({"weights": 1})):
        with pytest.raises(
            UnsafeArchiveError, match=r"pickle.*, which could run code.*torch\.export"
        ):
            model_format(data, "classifier.pt")


def test_a_decompression_bomb_is_rejected():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/models/model.json", b"{}" + b" " * 10**7)
    with pytest.raises(UnsafeArchiveError, match="far larger than"):
        model_format(out.getvalue(), "x")


def test_an_empty_record_of_a_large_tensor_is_rejected():
    """Otherwise torch would allocate zeros of the stated size."""

    def inflate(config: Any) -> None:
        config["config"]["0.bias"]["tensor_meta"]["sizes"] = [{"as_int": 2**34}]

    changes: dict[str, Callable[[bytes], bytes]] = {
        "archive/data/weights/model_weights_config.json": in_program(inflate),
        "archive/data/weights/weight_1": lambda _: b"",
    }
    with pytest.raises(UnsafeArchiveError, match="pickled or missing tensors"):
        sanitize_archive(rewritten(saved_by_torch(), changes), "x")


def test_a_missing_record_is_rejected():
    def change_path(config: Any) -> None:
        config["config"]["0.bias"]["path_name"] = "../../etc/passwd"

    change = {"archive/data/weights/model_weights_config.json": in_program(change_path)}
    with pytest.raises(UnsafeArchiveError, match="pickled or missing tensors"):
        sanitize_archive(rewritten(saved_by_torch(), change), "x")


def test_a_duplicate_member_is_rejected():
    data = io.BytesIO(saved_by_torch())
    with zipfile.ZipFile(data, "a") as archive:
        archive.writestr("other/models/model.json", b"{}")
    with pytest.raises(UnsafeArchiveError, match=r"'models/model\.json' appears twice"):
        sanitize_archive(data.getvalue(), "x")


@pytest.mark.parametrize(
    "target",
    [
        "torch.ops.aten.from_file.default",
        "torch.ops.aten.save.default",
        "torch.ops.higher_order.print",
        "torch.ops.higher_order.wrap",
        "torch.ops.aten.__getattr__.__getattribute__",
        "torch.ops.aten.add.__getattr__",
        "torch.ops.custom.op.default",
        "torch.hub.load",
        "_operator.attrgetter",
        "_operator.call",
        "math.__loader__",
        "#extension:x",
    ],
)
def test_an_operator_that_is_not_allowed_is_rejected(target):
    def call(program: Any) -> None:
        program["graph_module"]["graph"]["nodes"][0]["target"] = target

    change = {"archive/models/model.json": in_program(call)}
    with pytest.raises(UnsafeArchiveError, match="could run code"):
        sanitize_archive(rewritten(saved_by_torch(), change), "x")


@pytest.mark.parametrize(
    "spec",
    [
        {"type": "collections.deque", "context": "null", "children_spec": []},
        {"type": "collections.defaultdict", "context": '{"a": 1}', "children_spec": []},
        {
            "type": "builtins.dict",
            "context": '[{"__enum__": true, "fqn": "os:x"}]',
            "children_spec": [],
        },
        {"type": "builtins.dict", "context": '{"__enum__": 1}', "children_spec": []},
    ],
)
def test_a_structure_that_needs_an_import_is_rejected(spec):
    def nest(program: Any) -> None:
        signature = program["graph_module"]["module_call_graph"][0]["signature"]
        signature["out_spec"] = json.dumps([1, spec])

    change = {"archive/models/model.json": in_program(nest)}
    with pytest.raises(UnsafeArchiveError, match="a structure"):
        sanitize_archive(rewritten(saved_by_torch(), change), "x")


def test_a_damaged_member_is_a_clear_error():
    data = saved_by_torch().replace(b'"guards_code"', b'"guards_kode"')
    with pytest.raises(UnsafeArchiveError, match="damaged"):
        sanitize_archive(data, "x")


def emptied(program: Any) -> None:
    program["graph_module"]["graph"] = {}


def misspelt(program: Any) -> None:
    program["graph_module"]["graph"]["nodes"][0]["target"] = "torch.ops.aten.reluu.default"


@pytest.mark.parametrize("change", [emptied, misspelt])
def test_an_archive_torch_cannot_read_is_a_clear_error_and_no_log(change, capfd):
    data = rewritten(exported_classifier(), {"archive/models/model.json": in_program(change)})
    with pytest.raises(ClassifierError, match=r"classifier\.pt2 cannot be loaded") as error:
        load_classifier(data, small_spec())
    assert "warnings above" not in str(error.value)
    assert capfd.readouterr() == ("", "")
