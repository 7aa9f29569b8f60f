"""Script for the interpreter of tritonclient: `... TRANSPORT ADDRESS INPUT OUTPUT`.

It sends requests over one transport with every datatype and option of the client, and writes the
scores and other facts to OUTPUT. INPUT is a file with rows for each datatype.
"""

import asyncio
import json
import queue
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import tritonclient.grpc as triton_grpc
import tritonclient.grpc.aio as triton_grpc_aio
import tritonclient.http as triton_http
import tritonclient.http.aio as triton_http_aio
from tritonclient.utils import InferenceServerException

MODEL = "lending"
OUTPUTS = ("score", "decision", "verdict", "action", "p_value", "sensitivity")
MORE = ("flip_probability", "expected_change", "contributions")

transport, address, input_file, output_file = sys.argv[1:]
triton, aio = {"grpc": (triton_grpc, triton_grpc_aio), "http": (triton_http, triton_http_aio)}[
    transport
]
client = triton.InferenceServerClient(address)
rows = dict(np.load(input_file))
names = [str(name) for name in rows.pop("names")]
scores, facts = {}, {}


def typed(datatype):
    """The rows for a datatype in the form that the client expects."""
    if datatype == "BF16":
        return rows[datatype].astype(ml_dtypes.bfloat16)
    if datatype == "BYTES":
        texts = [repr(float(value)).encode() for value in rows[datatype].ravel()]
        return np.array(texts, object).reshape(rows[datatype].shape)
    return rows[datatype]


def tensor(name, values, datatype, **options):
    tensor_input = triton.InferInput(name, list(values.shape), datatype)
    tensor_input.set_data_from_numpy(values, **options)
    return tensor_input


def whole(datatype, **options):
    return [tensor("features", typed(datatype), datatype, **options)]


def columns(datatype, **options):
    """A tensor for each feature, the last first, `[n]` and `[n, 1]` in turn."""
    inputs = []
    for index, column in reversed(list(enumerate(typed(datatype).T))):
        shaped = np.ascontiguousarray(column if index % 2 else column[:, None])
        inputs.append(tensor(names[index], shaped, datatype, **options))
    return inputs


def mixed():
    """A tensor for each feature, each of another datatype."""
    kinds = list(zip(("UINT8", "INT64", "FP64", "FP16"), ("u1", "i8", "f8", "f2"), strict=True))
    return [
        tensor(name, rows["UINT8"][:, index].astype(kinds[index % 4][1]), kinds[index % 4][0])
        for index, name in enumerate(names)
    ]


def score(inputs, **options):
    return client.infer(MODEL, inputs, **options).as_numpy("score")


def error_of(call):
    """Status and message of a call that fails."""
    try:
        call()
    except InferenceServerException as error:
        return [error.status(), error.message()]
    return ["none", ""]


def texts(values):
    return [text.decode() for text in values.ravel()]


def server_facts():
    facts["live"], facts["ready"] = client.is_server_live(), client.is_server_ready()
    facts["model ready"] = client.is_model_ready(MODEL), client.is_model_ready(MODEL, "3")
    as_json = {"as_json": True} if transport == "grpc" else {}
    facts["server"] = client.get_server_metadata(**as_json)
    facts["model"] = client.get_model_metadata(MODEL, **as_json)
    facts["unknown model"] = error_of(lambda: client.infer("other", whole("FP32")))
    facts["unknown version"] = error_of(lambda: client.infer(MODEL, whole("FP32"), "9"))
    facts["unknown metadata"] = error_of(lambda: client.get_model_metadata("other"))


def all_datatypes():
    for datatype in rows:
        scores[f"{datatype} whole"] = score(whole(datatype))
        scores[f"{datatype} columns"] = score(columns(datatype))
        if transport == "http" and datatype != "BF16":
            scores[f"{datatype} whole JSON"] = score(whole(datatype, binary_data=False))
            scores[f"{datatype} columns JSON"] = score(columns(datatype, binary_data=False))
    scores["UINT8 mixed"] = score(mixed())


def all_outputs():
    """All outputs in reversed order, as the client decodes them."""
    requested = [triton.InferRequestedOutput(name) for name in reversed(OUTPUTS + MORE)]
    result = client.infer(
        MODEL, whole("FP32"), "3", requested, "r-7", parameters={"branch": "north"}
    )
    response = result.get_response()
    if transport == "http":
        facts["id"], facts["version"] = response["id"], response["model_version"]
        facts["parameters"] = response["parameters"]
        facts["order"] = [output["name"] for output in response["outputs"]]
    else:
        facts["id"], facts["version"] = response.id, response.model_version
        facts["parameters"] = {k: v.string_param for k, v in response.parameters.items()}
        facts["order"] = [output.name for output in response.outputs]
    for name in OUTPUTS + MORE:
        values = result.as_numpy(name)
        if values.dtype == object:
            facts[name] = [list(values.shape), texts(values)]
        else:
            scores[name] = values
    scores["FP32 all outputs"] = scores.pop("score")


def asynchronously():
    if transport == "grpc":
        callbacks = queue.Queue()
        client.async_infer(
            MODEL, whole("FP32"), lambda result, error: callbacks.put((result, error))
        )
        result, error = callbacks.get(timeout=30)
        assert error is None, error
    else:
        result = client.async_infer(MODEL, whole("FP32")).get_result()
    scores["FP32 async"] = result.as_numpy("score")
    scores["FP32 asyncio"] = asyncio.run(infer_in_event_loop())


async def infer_in_event_loop():
    async with aio.InferenceServerClient(address) as other:
        assert await other.is_model_ready(MODEL)
        calls = [other.infer(MODEL, whole("FP32")) for _ in range(8)]
        results = await asyncio.gather(*calls)
        return np.stack([result.as_numpy("score") for result in results])


def compressed():
    for name in ("gzip", "deflate"):
        if transport == "grpc":
            scores[f"FP32 {name}"] = score(whole("FP32"), compression_algorithm=name)
            continue
        for binary in (True, False):
            scores[f"FP32 {name} {binary}"] = score(
                whole("FP32", binary_data=binary),
                request_compression_algorithm=name,
                response_compression_algorithm=name,
                outputs=[triton.InferRequestedOutput("score", binary_data=not binary)],
            )


server_facts()
all_datatypes()
all_outputs()
asynchronously()
compressed()
client.close()
np.savez(output_file, **scores)
Path(output_file).with_suffix(".json").write_text(json.dumps(facts))
