"""Files that are no model for evenhand: each is named, with what to do, and never unpickled."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickle
import re
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import joblib
import numpy as np
import pytest
import torch
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from monitor import export_classifier
from monitor.bundle.archive import model_format
from monitor.bundle.foreign_formats import read_model_file
from monitor.errors import ClassifierError, UnsafeArchiveError
from monitor.fitting.classifier_file import classifier_file
from tests.bundles import exported_classifier, small_module, small_spec

DOCS = Path(__file__).parents[3] / "docs" / "fit.md"
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(200, 3))
CLASSES = (ROWS @ [1.0, -2.0, 0.5] + RNG.normal(size=200) > 0).astype(int)


class Payload:
    """A pickle that creates a folder when it is read: proof that code ran."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.mkdir, (self.proof,)


def joblib_file(compress: object = 0) -> bytes:
    buffer = io.BytesIO()
    joblib.dump(LogisticRegression().fit(ROWS, CLASSES), buffer, compress=compress)
    return buffer.getvalue()


def torch_file(value: object, *, zipped: bool) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer, _use_new_zipfile_serialization=zipped)
    return buffer.getvalue()


def zip_file(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def array_file(save: Callable[..., None]) -> bytes:
    buffer = io.BytesIO()
    save(buffer, np.zeros(3))
    return buffer.getvalue()


def safetensors_file() -> bytes:
    header = json.dumps({"weight": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(4)


# As XGBoost before 2.0 wrote them: parameters, objective and booster with their lengths.
XGBOOST_BINARY = (
    bytes(136) + struct.pack("<Q", 15) + b"binary:logistic" + struct.pack("<Q", 6) + b"gbtree"
)
XGBOOST_JSON = b'{"learner":{"attributes":{},"learner_model_param":{"num_feature":"3"}}}'
XGBOOST_UBJSON = b"{L" + struct.pack(">q", 7) + b"learner{L"
ONNX = b"\x08\x0a\x12\x08skl2onnx\x28\x00\x3a\x04\x0a\x02\x01X\x42\x04\x0a\x00\x10\x15"
SAVED_MODEL = b"\x08\x01\x12\x04\x0a\x02\x01\x02"
PMML = b'<?xml version="1.0"?>\n<!-- a model -->\n<PMML version="4.4"></PMML>'
KERAS = {"config.json": b"{}", "metadata.json": b"{}", "model.weights.h5": b""}

COMPRESSED = "a Python pickle of scikit-learn (pickle or joblib, compressed)"
FILES = [
    (joblib_file(), "a Python pickle of scikit-learn (pickle or joblib)", "linear models and mlps"),
    (joblib_file(3), COMPRESSED, "linear"),
    (joblib_file(("gzip", 3)), COMPRESSED, "linear"),
    (joblib_file(("bz2", 3)), COMPRESSED, "linear"),
    (joblib_file(("xz", 3)), COMPRESSED, "linear"),
    *(
        (pickle.dumps(StandardScaler(), protocol=version), "a Python pickle of scikit", "mlps")
        for version in range(6)
    ),
    *((pickle.dumps({"a": 1}, protocol=v), "a Python pickle (pickle", "export") for v in range(6)),
    (pickle.dumps(["xgboost.sklearn", "sklearn"]), "a Python pickle of XGBoost", "trees"),
    (torch_file(small_module(), zipped=True), "a whole module", "monitor.fit"),
    (torch_file(small_module(), zipped=False), "a whole module", "monitor.fit"),
    (torch_file(small_module().state_dict(), zipped=True), "a state dict", "load_state_dict"),
    (torch_file(small_module().state_dict(), zipped=False), "a state dict", "load_state_dict"),
    (ONNX, "an ONNX model", "convert"),
    (ONNX[:20], "an ONNX model", "convert"),
    (XGBOOST_JSON, "an XGBoost model (JSON)", "trees"),
    (XGBOOST_UBJSON, "an XGBoost model (UBJSON)", "trees"),
    (XGBOOST_BINARY, "an XGBoost model (binary)", "trees"),
    (b"binf" + XGBOOST_BINARY, "an XGBoost model (binary)", "trees"),
    (b"tree\nversion=v4\nnum_class=1\n", "a LightGBM model (text)", "trees"),
    (b"CBM1\x00\x00", "a CatBoost model", "trees"),
    (zip_file(**KERAS), "a Keras model (.keras)", "convert"),
    (b"\x89HDF\r\n\x1a\n" + bytes(50) + b"keras_version", "a Keras model in HDF5", "convert"),
    (b"\x89HDF\r\n\x1a\n" + bytes(50), "an HDF5 file", "convert"),
    (SAVED_MODEL, "the graph of a TensorFlow SavedModel", "convert"),
    (b"\x1c\x00\x00\x00TFL3", "a TensorFlow Lite model", "convert"),
    (safetensors_file(), "a safetensors file", "load_state_dict"),
    (safetensors_file()[:40], "a safetensors file", "load_state_dict"),
    (PMML, "a PMML model", "coefficients"),
    (zip_file(**{"schema.json": b"{}"}), "a skops file of scikit-learn", "mlps"),
    (array_file(np.savez), "a NumPy archive (.npz)", "weights"),
    (array_file(np.save), "a NumPy array", "weights"),
    (zip_file(**{"a/serialized_exported_program.json": b""}), "a torch.export archive", "2.9"),
    (b"PAR1" + bytes(20), "a Parquet table", "as the data"),
    (bytes(257) + b"ustar\x00" + bytes(250), "a tar archive", "unpack"),
    (b"version https://git-lfs.github.com/spec/v1\noid", "a Git LFS pointer", "git lfs pull"),
    (b"", "empty (0 bytes)", "copy or download the file again"),
    (exported_classifier()[:-30], "a truncated or damaged zip archive", "copy or download"),
    (zip_file(a=b""), "a zip archive, but neither a torch.export archive", "export"),
    (b"hello", "neither a torch.export archive nor TorchScript", "export"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "what", "advice"), FILES, ids=[what for _, what, _ in FILES])
def test_a_foreign_file_is_named_with_what_to_do(data, what, advice):
    with pytest.raises(UnsafeArchiveError, match=rf"model\.bin is {re.escape(what)}") as caught:
        model_format(data, "model.bin")
    assert advice in str(caught.value).lower()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "wrap",
    [bytes, zlib.compress, gzip.compress, bz2.compress, lzma.compress],
    ids=["plain", "zlib", "gzip", "bz2", "lzma"],
)
@pytest.mark.parametrize("version", range(6))
def test_no_pickle_is_read_to_recognise_it(tmp_path, wrap, version):
    proof = tmp_path / "proof"
    data = wrap(pickle.dumps(Payload(proof), protocol=version))
    with pytest.raises(UnsafeArchiveError, match="evenhand never unpickles files"):
        model_format(data, "model.pkl")
    assert not proof.exists()


def test_a_pickled_pipeline_with_a_column_transformer_names_encoding_from_sklearn():
    transformer = ColumnTransformer([("a", StandardScaler(), [0, 1, 2])])
    pipeline = make_pipeline(transformer, LogisticRegression()).fit(ROWS, CLASSES)
    with pytest.raises(UnsafeArchiveError) as error:
        model_format(pickle.dumps(pipeline), "pipeline.pkl")
    assert "is a Python pickle of scikit-learn" in str(error.value)
    assert "has a ColumnTransformer" in str(error.value)
    assert "`encoding_from_sklearn`" in str(error.value)
    with pytest.raises(UnsafeArchiveError) as plain:
        model_format(joblib_file(), "model.joblib")
    assert "ColumnTransformer" not in str(plain.value)


def test_compressed_data_are_expanded_up_to_a_limit():
    """Zeros that expand a thousandfold must not fill the memory."""
    data = zlib.compress(bytes(100_000_000))
    tracemalloc.start()
    with pytest.raises(UnsafeArchiveError):
        model_format(data, "model.z")
    assert tracemalloc.get_traced_memory()[1] < 20_000_000
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("name", "claimed"), [("m.onnx", "ONNX"), ("M.PKL", "a pickle"), ("a/m.keras", "Keras")]
)
def test_the_suffix_is_a_hint_if_the_content_is_unknown(name, claimed):
    with pytest.raises(UnsafeArchiveError, match=f"{name} is named like {claimed}, but"):
        model_format(b"hello", name)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["saved_model.pb"], "is the directory of a TensorFlow SavedModel. Convert"),
        (["manifest.json"], "is a bundle. Pass the model file"),
        (["MLmodel"], "is the directory of an MLflow model"),
        ([], "is a directory. Pass a model file"),
    ],
)
def test_a_directory_is_named_with_what_to_do(tmp_path, files, message):
    for file in files:
        (tmp_path / file).touch()
    with pytest.raises(ClassifierError, match=re.escape(f"{tmp_path} {message}")):
        classifier_file(tmp_path, small_spec())


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ClassifierError, match=r"m\.pt2: no such file"):
        read_model_file(tmp_path / "m.pt2")


def documented() -> dict[str, object]:
    """Names that the example of the docs defines."""
    (text,) = (
        text
        for text in re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
        if "def as_module" in text
    )
    names: dict[str, object] = {}
    exec(compile(text, "fit.md", "exec"), names)  # noqa: S102 - our own example
    return names


@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(),
        LogisticRegression(fit_intercept=False),
        *(
            MLPClassifier((8, 4), activation=name, max_iter=30, random_state=0)
            for name in ("relu", "tanh", "logistic", "identity")
        ),
        make_pipeline(StandardScaler(), LogisticRegression()),
        make_pipeline(StandardScaler(), MLPClassifier((8,), max_iter=30, random_state=0)),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
def test_the_documented_torch_modules_predict_as_scikit_learn(model):
    """Same P(class 1) up to float32, and the module can be exported."""
    expected = model.fit(ROWS * 3 + 5, CLASSES).predict_proba(ROWS * 3 + 5)[:, 1]
    module = documented()["as_module"](model)  # type: ignore[operator]
    logits = module(torch.tensor(ROWS * 3 + 5, dtype=torch.float32))
    assert logits.shape == (200, 1)
    np.testing.assert_allclose(torch.sigmoid(logits[:, 0]).detach(), expected, atol=1e-5)
    assert model_format(export_classifier(module, 3), "model.pt2") == "torch.export"
