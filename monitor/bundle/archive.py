"""Sanitizes model files: the result contains a graph and tensors, and no code that runs on loading.

`torch.export.load` unpickles sample inputs and some constants, and evaluates strings of the graph
as Python (shape expressions, guards, names in generated code, operators looked up by name).
Therefore `sanitize_archive` rebuilds an archive before torch reads it: it copies the parts that are
plain data, drops those that inference does not need, and rejects everything else.
"""

from __future__ import annotations

import ast
import io
import json
import math
import re
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, Literal

from monitor.bundle.foreign_formats import EXPORT_HINT, foreign_archive, foreign_file
from monitor.errors import UnsafeArchiveError

__all__ = ["model_format", "sanitize_archive"]

_KEPT = re.compile(
    r"models/model\.json|data/weights/(model_weights_config\.json|weight_\d+)"
    r"|data/constants/(model_constants_config\.json|tensor_\d+)"
    r"|archive_format|archive_version|byteorder|version|\.data/(version|serialization_id)"
    r"|\.format_version|\.storage_alignment"
)
_ZIP = b"PK\x03\x04"
_SAMPLE_INPUTS = "data/sample_inputs/model.pt"
_NAME = re.compile(r"[\w.]*")
# Names of parameters must not end a quoted string in generated code.
_QUOTABLE = re.compile(r"""[^"'\\\x00-\x1f]*""")
_SYMBOL = re.compile(r"[a-z]{1,3}\d+", re.ASCII)

_OPERATOR = re.compile(
    r"torch\.ops\.(aten|prims)\.(?!(from_file|save|load)\b)_?[A-Za-z]\w*\.[A-Za-z]\w*"
    r"|torch\.ops\.higher_order\.(cond|wrap_with_set_grad_enabled|wrap_with_autocast)"
    r"|torch\.sym_(float|int|ite|max|min|not|sqrt|sum)|math\.(ceil|floor|sqrt|trunc)"
    r"|_operator\.(add|sub|mul|truediv|floordiv|mod|neg|pos|abs|eq|ne|lt|le|gt|ge"
    r"|and_|or_|not_|invert|getitem)",
    re.ASCII,
)
# Calls in TorchScript that read or write files, and operators that are not torch's own.
_SCRIPT_REFUSED = re.compile(rb"\b(save|load|from_file)\s*\(|\bops\.(?!aten\.|prim\.)\w+\.")
_SHAPE_FUNCTIONS = frozenset(
    {
        *("Symbol", "Integer", "Float", "Rational", "true", "false", "oo", "int_oo", "Identity"),
        *("Add", "Mul", "Max", "Min", "Abs", "Mod", "PythonMod", "FloorDiv", "CleanDiv"),
        *("CeilDiv", "IntTrueDiv", "FloatTrueDiv", "FloorToInt", "CeilToInt", "RoundToInt"),
        *("TruncToInt", "ToFloat", "Where", "And", "Or", "Not", "Eq", "Ne", "Lt", "Le", "Gt"),
        *("Ge", "Equality", "Unequality", "LessThan", "GreaterThan", "StrictLessThan"),
        "StrictGreaterThan",
    }
)
# No powers: a few nested ones take unbounded time.
_SHAPE_NODES = (
    *(ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.unaryop, ast.boolop),
    *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.cmpop, ast.Load, ast.Call),
    *(ast.Name, ast.Constant, ast.keyword),
)
_MAX_EXPRESSION_LENGTH = 1000
_FREE_TEXT = frozenset({"as_string", "as_strings", "torch_version"})
_PARAMETER_NAMES = frozenset({"parameter_name", "buffer_name", "tensor_constant_name", "fqn"})
_TREE_TYPES = (None, "builtins.tuple", "builtins.list", "builtins.dict")


def model_format(data: bytes, name: str) -> Literal["torch.export", "torchscript"]:
    """Format of a model file, detected from its content.

    Raises:
        UnsafeArchiveError: The file has another format, or is TorchScript that accesses files.
    """
    if not data.startswith(_ZIP) and (foreign := foreign_file(data, name)):
        raise UnsafeArchiveError(f"{name} {foreign}")
    archive = _open(data, name)
    members = [part.partition("/")[2] for part in archive.namelist()]
    if "models/model.json" in members:
        return "torch.export"
    if "constants.pkl" in members and any(part.startswith("code/") for part in members):
        _check_script(archive, name)
        return "torchscript"
    raise UnsafeArchiveError(f"{name} {foreign_archive(archive)}")


def sanitize_archive(data: bytes, name: str) -> bytes:
    """Rebuild a torch.export archive from its plain data.

    Raises:
        UnsafeArchiveError: The archive contains something that could run code when it is loaded.
    """
    if model_format(data, name) != "torch.export":
        raise UnsafeArchiveError(f"{name} contains TorchScript; name the file classifier.pt")
    archive, out = _open(data, name), io.BytesIO()
    members: dict[str, bytes] = {}
    for member in archive.infolist():
        path = member.filename.partition("/")[2]
        if path.startswith("extra/") or path == _SAMPLE_INPUTS:
            continue
        if path in members:
            raise UnsafeArchiveError(f"{name}: {path!r} appears twice")
        if not _KEPT.fullmatch(path):
            raise UnsafeArchiveError(
                f"{name}: {path!r} is pickled or compiled, not plain data. {EXPORT_HINT}"
            )
        members[path] = _read(archive, member, name)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as rebuilt:
        for path, content in members.items():
            _store(rebuilt, f"archive/{path}", _cleaned(path, content, members, name))
        # torch requires the member; an empty one means "no sample inputs".
        _store(rebuilt, f"archive/{_SAMPLE_INPUTS}", b"")
    return out.getvalue()


def _open(data: bytes, name: str) -> zipfile.ZipFile:
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise UnsafeArchiveError(
            f"{name} is a truncated or damaged zip archive of {len(data)} bytes ({error}). Copy or "
            "download the file again, or export the model again"
        ) from None
    # Only TorchScript's code is compressed, so a large ratio is a decompression bomb.
    if sum(member.file_size for member in archive.infolist()) > 10 * len(data) + (1 << 20):
        raise UnsafeArchiveError(
            f"{name}: its content is far larger than torch's compression allows"
        )
    return archive


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> bytes:
    try:
        return archive.read(member)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error) as error:
        raise UnsafeArchiveError(f"{name}: {member.filename} is damaged ({error})") from None


def _check_script(archive: zipfile.ZipFile, name: str) -> None:
    for member in archive.infolist():
        if "/code/" in member.filename and member.filename.endswith(".py"):
            match = _SCRIPT_REFUSED.search(_read(archive, member, name))
            if match:
                raise UnsafeArchiveError(
                    f"{name}: its TorchScript calls {match[0].decode()!r}, which could access "
                    f"files or run other code. {EXPORT_HINT}"
                )


def _store(archive: zipfile.ZipFile, path: str, data: bytes) -> None:
    # A bare ZipInfo has a constant time, so that rebuilding twice gives the same bytes.
    archive.writestr(zipfile.ZipInfo(path), data)


def _cleaned(path: str, data: bytes, members: Mapping[str, bytes], name: str) -> bytes:
    if not path.endswith(".json"):
        return data
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        raise UnsafeArchiveError(f"{name}: {path} is not JSON") from None
    if path == "models/model.json":
        content = _cleaned_program(content, name)
    elif _is_unsafe(content, PurePosixPath(path).parent, members):
        raise UnsafeArchiveError(f"{name}: {path} lists pickled or missing tensors. {EXPORT_HINT}")
    return json.dumps(content).encode()


def _is_unsafe(payloads: Any, folder: PurePosixPath, members: Mapping[str, bytes]) -> bool:
    """Whether a table of weights or constants lists anything but existing raw tensors."""
    try:
        for entry in payloads["config"].values():
            record = members[str(folder / entry["path_name"])]
            elements = math.prod(size["as_int"] for size in entry["tensor_meta"]["sizes"])
            # torch creates zeros of any size for an empty record.
            if entry["use_pickle"] is not False or elements > len(record):
                return True
    except (KeyError, TypeError, AttributeError):
        return True
    return False


def _cleaned_program(program: Any, name: str) -> Any:
    """The graph without debug information, after all its strings were checked."""
    if not isinstance(program, dict) or not isinstance(program.get("graph_module"), dict):
        raise UnsafeArchiveError(f"{name}: models/model.json contains no graph")
    program = {**program, "guards_code": []}
    try:
        return _checked(program, "program")
    except _Refused as refused:
        raise UnsafeArchiveError(
            f"{name}: the graph contains {refused}, which could run code"
        ) from None


class _Refused(Exception):  # noqa: N818 - used in this module only
    """A string of the graph that torch might evaluate as Python."""


def _checked(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        # Stack traces of nodes and graphs contain paths of the machine that exported the model.
        drop = "metadata" if value.keys() & {"target", "graph"} else None
        return {_name(k): {} if k == drop else _checked(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [_checked(item, key) for item in value]
    if isinstance(value, str) and key not in _FREE_TEXT:
        _CHECKS.get(key, _parameter_name if key in _PARAMETER_NAMES else _name)(value)
    return value


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise _Refused(f"the name {text[:60]!r}")
    return text


def _parameter_name(text: str) -> None:
    if not _QUOTABLE.fullmatch(text):
        raise _Refused(f"the name {text[:60]!r}")


def _target(text: str) -> None:
    if not _OPERATOR.fullmatch(text):
        raise _Refused(f"the operator {text[:60]!r}")


def _shape_expression(text: str) -> None:
    """Accept only arithmetic on size symbols: torch passes this string to sympy's eval."""
    try:
        nodes = list(ast.walk(ast.parse(text[:_MAX_EXPRESSION_LENGTH], mode="eval")))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _Refused(f"the expression {text[:60]!r}") from None
    for node in nodes:
        known = isinstance(node, _SHAPE_NODES) and len(text) <= _MAX_EXPRESSION_LENGTH
        if isinstance(node, ast.Name):
            known = node.id in _SHAPE_FUNCTIONS or bool(_SYMBOL.fullmatch(node.id))
        elif isinstance(node, ast.Call):
            known = isinstance(node.func, ast.Name)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            known = bool(_SYMBOL.fullmatch(node.value))
        elif isinstance(node, ast.Constant):
            known = isinstance(node.value, int | float) and abs(node.value) < 2**63
        if not known:
            raise _Refused(f"the expression {text[:60]!r}")


def _tree(text: str) -> None:
    """Accept nested tuples, lists and dicts; torch would import other types by name."""
    if text == "":
        return
    try:
        pending = [json.loads(text)[1]]
        while pending:
            node = pending.pop()
            keys = json.loads(node["context"] or "null")
            plain = keys is None or all(isinstance(key, str) for key in keys)
            if node["type"] not in _TREE_TYPES or not plain or isinstance(keys, dict):
                raise _Refused(f"a structure of type {str(node['type'])[:60]!r}")
            pending.extend(node["children_spec"])
    except (ValueError, KeyError, TypeError, IndexError):
        raise _Refused("a malformed structure") from None


_CHECKS = {
    "target": _target,
    "as_operator": _target,
    "expr_str": _shape_expression,
    "in_spec": _tree,
    "out_spec": _tree,
}
