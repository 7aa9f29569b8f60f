"""Recognises files that are not models that evenhand can load, and says what to do with them.

A format is recognised by its first bytes, names of members and strings. Nothing is unpickled,
imported or executed; compressed data are expanded up to a limit only.
"""

from __future__ import annotations

import bz2
import lzma
import re
import zipfile
import zlib
from collections.abc import Callable, Collection
from pathlib import Path, PurePath

from monitor.errors import ClassifierError

__all__ = ["EXPORT_HINT", "foreign_archive", "foreign_file", "read_model_file"]

EXPORT_HINT = (
    "Export the model instead: torch.export.save(torch.export.export(model.eval(), "
    "(torch.zeros(2, width),), dynamic_shapes=({0: torch.export.Dim('batch')},)), "
    "'classifier.pt2')"
)
_SEE = "see docs/fit.md#what-to-do-with-the-model-that-i-have"
_NEVER = "which could run code when it is read; evenhand never unpickles files"
_LINEAR = (
    "Linear models and MLPs of scikit-learn can be rewritten as torch modules with the same "
    f"predictions: {_SEE}. {EXPORT_HINT}"
)
_ENCODING = (
    "It has a ColumnTransformer: after loading it in your own code, `encoding_from_sklearn` writes "
    "it into the spec, and the model behind it becomes the classifier."
)
_TREES = (
    "To be served, trees must be rewritten as a torch module; the audits of offline_audit take "
    f"any model: {_SEE}"
)
_CONVERT = f"Convert it to a torch module and export that: {_SEE}"
_WEIGHTS = (
    "It contains weights without the network: build the module, call load_state_dict, then "
    f"pass the module to monitor.fit or export it: {_SEE}. {EXPORT_HINT}"
)
_COPY = "Copy or download the file again, or export the model again"

# Bytes that are searched for names of libraries, also the most that compressed data expand to.
_SEARCHED = 1 << 20
_PICKLE = re.compile(
    rb"\x80[\x02-\x05]|\(?i?c[A-Za-z_][\w.]*\n[A-Za-z_]\w*\n|\((dp|lp)\d+\n|[}\]]q\x00"
)
_ZIP = b"PK\x03\x04"
# The pickled number with which torch.save began files before torch 1.6.
_OLD_TORCH_SAVE = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
# The first library in this order that a pickle names: boosters of XGBoost and LightGBM in
# scikit-learn's interface name scikit-learn too.
_LIBRARIES = {
    b"xgboost": ("XGBoost", _TREES),
    b"lightgbm": ("LightGBM", _TREES),
    b"catboost": ("CatBoost", _TREES),
    b"sklearn": ("scikit-learn", _LINEAR),
}
_EXPANDERS: dict[bytes, Callable[[], Callable[[bytes, int], bytes]]] = {
    b"x": lambda: zlib.decompressobj().decompress,
    b"\x1f\x8b": lambda: zlib.decompressobj(wbits=31).decompress,
    b"BZh": lambda: bz2.BZ2Decompressor().decompress,
    b"\xfd7zXZ\x00": lambda: lzma.LZMADecompressor().decompress,
    b"]\x00\x00": lambda: lzma.LZMADecompressor().decompress,
}
# Pattern at the beginning of the file; what the file is; what to do.
_FORMATS = tuple(
    (re.compile(pattern, re.DOTALL), what, advice)
    for pattern, what, advice in (
        (rb"version https://git-lfs", "is a Git LFS pointer, not the file itself",
         "Run git lfs pull"),
        (rb"\s*\{\s*\"(learner|version)\".*\"learner_model_param\"", "is an XGBoost model (JSON)",
         _TREES),
        (rb"\{[iUIlL]\0*\x07learner", "is an XGBoost model (UBJSON)", _TREES),
        (rb".{24,200}(binary|reg|multi|rank|count|survival):\w+.{8}(gbtree|gblinear|dart)",
         "is an XGBoost model (binary)", _TREES),
        (rb"tree\r?\nversion=", "is a LightGBM model (text)", _TREES),
        (rb"CBM1", "is a CatBoost model", _TREES),
        (rb".{8}\{\s*\"", "is a safetensors file", _WEIGHTS),
        (rb"(\xef\xbb\xbf)?\s*<.{0,4000}?(?<=<)(\w+:)?PMML\b", "is a PMML model",
         f"Rewrite a linear model from its coefficients as a torch module: {_SEE}"),
        (rb".{4}TFL3", "is a TensorFlow Lite model", _CONVERT),
        (rb"\x93NUMPY", "is a NumPy array", _WEIGHTS),
        (rb"PAR1", "is a Parquet table", "Pass it as the data, and a model file as the classifier"),
        (rb".{257}ustar", "is a tar archive", "Unpack it, and pass the model file in it"),
    )
)  # fmt: skip
_BY_SUFFIX = {
    ".joblib": "a joblib file", ".pkl": "a pickle", ".pickle": "a pickle", ".onnx": "ONNX",
    ".ubj": "XGBoost", ".lgb": "LightGBM", ".keras": "Keras", ".h5": "Keras", ".hdf5": "HDF5",
    ".pb": "TensorFlow", ".tflite": "TensorFlow Lite", ".safetensors": "safetensors",
    ".pmml": "PMML", ".cbm": "CatBoost", ".pt": "TorchScript", ".pt2": "torch.export",
    ".pth": "torch.save", ".ckpt": "a checkpoint",
}  # fmt: skip


def read_model_file(path: Path) -> bytes:
    """Content of a model file.

    Raises:
        ClassifierError: There is no such file, it is a directory, or it cannot be read.
    """
    if path.is_dir():
        raise ClassifierError(f"{path} {_directory({item.name for item in path.iterdir()})}")
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ClassifierError(f"{path}: no such file; expected a model file") from None
    except OSError as error:
        raise ClassifierError(f"{path}: cannot be read: {error.strerror or error}") from None


def foreign_file(data: bytes, name: str) -> str | None:
    """What a file is that is no zip archive, and what to do; None for a zip archive.

    Args:
        data: Content of the file.
        name: Its name, whose suffix is used only if the content is not recognised.
    """
    if data.startswith(_ZIP):
        return None
    if not data:
        return f"is empty (0 bytes). {_COPY}"
    described = _pickle(data) or _by_beginning(data) or _protobuf(data)
    return described or _unknown(name)


def foreign_archive(archive: zipfile.ZipFile) -> str:
    """What a zip archive is that contains no model for evenhand, and what to do."""
    members = archive.namelist()
    inner = {member.partition("/")[2]: member for member in members}
    if "data.pkl" in inner:
        return _torch_save(_beginning(archive, inner["data.pkl"]))
    if any(part.startswith("data/aotinductor/") for part in inner):
        return f"is compiled native code, which has no gradient. {EXPORT_HINT}"
    if {"config.json", "model.weights.h5"} <= set(members):
        return f"is a Keras model (.keras). {_CONVERT}"
    if "serialized_exported_program.json" in {PurePath(member).name for member in members}:
        return f"is a torch.export archive of torch before 2.9. {EXPORT_HINT}"
    if "schema.json" in members:
        return f"is a skops file of scikit-learn. {_LINEAR}"
    if members and all(member.endswith(".npy") for member in members):
        return f"is a NumPy archive (.npz). {_WEIGHTS}"
    return (
        "is a zip archive, but neither a torch.export archive of torch 2.9 or later nor "
        f"TorchScript. {EXPORT_HINT}"
    )


def _beginning(archive: zipfile.ZipFile, member: str) -> bytes:
    try:
        with archive.open(member) as stream:
            return stream.read(_SEARCHED)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error):
        return b""


def _directory(names: Collection[str]) -> str:
    if {"saved_model.pb", "saved_model.pbtxt"} & set(names):
        return f"is the directory of a TensorFlow SavedModel. {_CONVERT}"
    if "manifest.json" in names:
        return "is a bundle. Pass the model file, for example the classifier.pt2 in it"
    if "MLmodel" in names:
        return f"is the directory of an MLflow model. Export the model that it contains: {_SEE}"
    return f"is a directory. Pass a model file (.pt2 or TorchScript); {_SEE}"


def _expanded(data: bytes, decompress: Callable[[bytes, int], bytes]) -> bytes:
    """The beginning of compressed data, or b"" if they are damaged."""
    try:
        return decompress(data, _SEARCHED)
    except (zlib.error, OSError, lzma.LZMAError, EOFError, ValueError):
        return b""


def _pickle(data: bytes) -> str | None:
    head, how = data[:_SEARCHED], ""
    for magic, expander in _EXPANDERS.items():
        if data.startswith(magic):
            head, how = _expanded(data, expander()), ", compressed"
    if not _PICKLE.match(head):
        return None
    if head.startswith(_OLD_TORCH_SAVE):
        return _torch_save(data)
    for module, (library, advice) in _LIBRARIES.items():
        if re.search(rb"\bc?" + module + rb"\b", head):
            if library == "scikit-learn" and b"ColumnTransformer" in head:
                advice = f"{_ENCODING} {advice}"
            return f"is a Python pickle of {library} (pickle or joblib{how}), {_NEVER}. {advice}"
    return f"is a Python pickle (pickle or joblib{how}), {_NEVER}. {EXPORT_HINT}; {_SEE}"


def _torch_save(pickled: bytes) -> str:
    """What torch.save wrote; a module has the attributes `_modules` and `_parameters`."""
    if b"_modules" in pickled and b"_parameters" in pickled:
        what = "whole module"
        advice = f"Where it was written, pass the module to monitor.fit: {_SEE}. {EXPORT_HINT}"
    else:
        what, advice = "state dict or checkpoint", _WEIGHTS
    return f"is a {what} that torch.save wrote as a pickle, {_NEVER}. {advice}"


def _by_beginning(data: bytes) -> str | None:
    for pattern, what, advice in _FORMATS:
        if pattern.match(data):
            return f"{what}. {advice}"
    if data.startswith(b"\x89HDF\r\n\x1a\n"):
        keras = b"keras_version" in data or b"model_config" in data
        return f"is {'a Keras model in HDF5' if keras else 'an HDF5 file'}. {_CONVERT}"
    return None


def _protobuf(data: bytes) -> str | None:
    fields = _protobuf_fields(data)
    if fields[:1] != [1]:
        return None
    # Fields of ONNX: 1 is the version, 7 the graph; of TensorFlow: the version and the graphs.
    if 7 in fields:
        return f"is an ONNX model. {_CONVERT}"
    if set(fields) == {1, 2}:
        return f"is the graph of a TensorFlow SavedModel. {_CONVERT}"
    return None


def _protobuf_fields(data: bytes) -> list[int]:
    """Numbers of the fields of a protobuf message, in order; empty if it is none.

    The last field may be longer than the data, as in a truncated file.
    """
    fields: list[int] = []
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        fields.append(key >> 3)
        if key & 7 == 0:
            _, position = _varint(data, position)
        elif key & 7 == 2:
            length, position = _varint(data, position)
            position += length
        else:
            return []
    return fields


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift, byte in enumerate(data[position : position + 10]):
        value |= (byte & 127) << 7 * shift
        if byte < 128:
            return value, position + shift + 1
    return value, len(data)


def _unknown(name: str) -> str:
    text = f"is neither a torch.export archive nor TorchScript. {EXPORT_HINT}"
    claimed = _BY_SUFFIX.get(PurePath(name).suffix.lower())
    if claimed is None:
        return text
    return f"is named like {claimed}, but its content is not; it may be damaged. {_COPY}; {_SEE}"
