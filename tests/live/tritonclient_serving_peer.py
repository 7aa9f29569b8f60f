"""Script for the interpreter of tritonclient: `... TRANSPORT ADDRESS ROWS RESULTS`.

It sends requests over one transport with every datatype and option of the client, and writes the
scores and other facts to RESULTS. ROWS is a file with rows for each datatype.
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

transport, address, given, made = sys.argv[1:]
triton, aio = {"grpc": (triton_grpc, triton_grpc_aio), "http": (triton_http, triton_http_aio)}[
    transport
]
client = triton.InferenceServerClient(address)
rows = dict(np.load(given))
names = [str(name) for name in rows.pop("names")]
scores, facts = {}, {}


def typed(datatype):
    """The rows for a datatype as the client wants them."""
    if datatype == "BF16":
        return rows[datatype].astype(ml_dtypes.bfloat16)
    if datatype == "BYTES":
        texts = [repr(float(value)).encode() for value in rows[datatype].ravel()]
        return np.array(texts, object).reshape(rows[datatype].shape)
    return rows[datatype]


def tensor(name, values, datatype, **options):
    found = triton.InferInput(name, list(values.shape), datatype)
    found.set_data_from_numpy(values, **options)
    return found


def whole(datatype, **options):
    return [tensor("features", typed(datatype), datatype, **options)]


def columns(datatype, **options):
    """A tensor for each feature, the last first, `[n]` and `[n, 1]` in turn."""
    found = []
    for place, column in reversed(list(enumerate(typed(datatype).T))):
        shaped = np.ascontiguousarray(column if place % 2 else column[:, None])
        found.append(tensor(names[place], shaped, datatype, **options))
    return found


def mixed():
    """A tensor for each feature, each of another datatype."""
    kinds = list(zip(("UINT8", "INT64", "FP64", "FP16"), ("u1", "i8", "f8", "f2"), strict=True))
    return [
        tensor(name, rows["UINT8"][:, place].astype(kinds[place % 4][1]), kinds[place % 4][0])
        for place, name in enumerate(names)
    ]


def score(inputs, **options):
    return client.infer(MODEL, inputs, **options).as_numpy("score")


def refusal(call):
    """Status and message of what is refused."""
    try:
        call()
    except InferenceServerException as error:
        return [error.status(), error.message()]
    return ["none", ""]


def texts(values):
    return [text.decode() for text in values.ravel()]


def about_the_server():
    facts["live"], facts["ready"] = client.is_server_live(), client.is_server_ready()
    facts["model ready"] = client.is_model_ready(MODEL), client.is_model_ready(MODEL, "3")
    as_json = {"as_json": True} if transport == "grpc" else {}
    facts["server"] = client.get_server_metadata(**as_json)
    facts["model"] = client.get_model_metadata(MODEL, **as_json)
    facts["unknown model"] = refusal(lambda: client.infer("other", whole("FP32")))
    facts["unknown version"] = refusal(lambda: client.infer(MODEL, whole("FP32"), "9"))
    facts["unknown metadata"] = refusal(lambda: client.get_model_metadata("other"))


def every_datatype():
    for datatype in rows:
        scores[f"{datatype} whole"] = score(whole(datatype))
        scores[f"{datatype} columns"] = score(columns(datatype))
        if transport == "http" and datatype != "BF16":
            scores[f"{datatype} whole JSON"] = score(whole(datatype, binary_data=False))
            scores[f"{datatype} columns JSON"] = score(columns(datatype, binary_data=False))
    scores["UINT8 mixed"] = score(mixed())


def every_output():
    """In an order that is not the server's, as the client decodes them."""
    wanted = [triton.InferRequestedOutput(name) for name in reversed(OUTPUTS + MORE)]
    answer = client.infer(MODEL, whole("FP32"), "3", wanted, "r-7", parameters={"branch": "north"})
    response = answer.get_response()
    if transport == "http":
        facts["id"], facts["version"] = response["id"], response["model_version"]
        facts["parameters"] = response["parameters"]
        facts["order"] = [output["name"] for output in response["outputs"]]
    else:
        facts["id"], facts["version"] = response.id, response.model_version
        facts["parameters"] = {k: v.string_param for k, v in response.parameters.items()}
        facts["order"] = [output.name for output in response.outputs]
    for name in OUTPUTS + MORE:
        values = answer.as_numpy(name)
        if values.dtype == object:
            facts[name] = [list(values.shape), texts(values)]
        else:
            scores[name] = values
    scores["FP32 wanted"] = scores.pop("score")


def asynchronously():
    if transport == "grpc":
        found = queue.Queue()
        client.async_infer(MODEL, whole("FP32"), lambda result, error: found.put((result, error)))
        answer, error = found.get(timeout=30)
        assert error is None, error
    else:
        answer = client.async_infer(MODEL, whole("FP32")).get_result()
    scores["FP32 async"] = answer.as_numpy("score")
    scores["FP32 asyncio"] = asyncio.run(in_a_loop())


async def in_a_loop():
    async with aio.InferenceServerClient(address) as other:
        assert await other.is_model_ready(MODEL)
        calls = [other.infer(MODEL, whole("FP32")) for _ in range(8)]
        answers = await asyncio.gather(*calls)
        return np.stack([answer.as_numpy("score") for answer in answers])


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


about_the_server()
every_datatype()
every_output()
asynchronously()
compressed()
client.close()
np.savez(made, **scores)
Path(made).with_suffix(".json").write_text(json.dumps(facts))
