"""The committed stubs are what the contracts generate, and carry the protocol's numbers."""

from pathlib import Path

from grpc_tools import protoc

from monitor.wire import (
    evenhand_pb2,
    evenhand_pb2_grpc,
    open_inference_pb2,
    open_inference_pb2_grpc,
)

ROOT = Path(__file__).parents[3]
PROTOS = ["open_inference", "evenhand"]


def test_regenerating_the_stubs_changes_nothing(tmp_path):
    arguments = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi", "grpc_python")]
    files = [f"monitor/wire/{name}.proto" for name in PROTOS]
    include = Path(protoc.__file__).parent / "_proto"
    assert (
        protoc.main(["", f"-Imonitor/wire={ROOT / 'proto'}", f"-I{include}", *arguments, *files])
        == 0
    )
    made = sorted((tmp_path / "monitor" / "wire").iterdir())
    assert len(made) == 3 * len(PROTOS)
    for file in made:
        committed = ROOT / "monitor" / "wire" / file.name
        assert committed.read_text() == file.read_text(), "run `make proto`"


def numbers(message) -> dict[str, int]:
    return {field.name: field.number for field in message.DESCRIPTOR.fields}


def test_infer_messages_have_the_numbers_of_the_protocol():
    wire = open_inference_pb2
    assert numbers(wire.ModelInferRequest) == {
        "model_name": 1,
        "model_version": 2,
        "id": 3,
        "parameters": 4,
        "inputs": 5,
        "outputs": 6,
        "raw_input_contents": 7,
    }
    assert numbers(wire.ModelInferResponse) == {
        "model_name": 1,
        "model_version": 2,
        "id": 3,
        "parameters": 4,
        "outputs": 5,
        "raw_output_contents": 6,
    }


def test_the_services_carry_the_names_that_clients_call():
    service = open_inference_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    assert service.full_name == "inference.GRPCInferenceService"
    assert [method.name for method in service.methods] == [
        "ServerLive",
        "ServerReady",
        "ModelReady",
        "ServerMetadata",
        "ModelMetadata",
        "ModelInfer",
    ]
    monitor = evenhand_pb2.DESCRIPTOR.services_by_name["Monitor"]
    assert monitor.full_name == "evenhand.v1.Monitor"
    assert [method.name for method in monitor.methods] == ["RecordOutcomes"]
    assert open_inference_pb2_grpc.GRPCInferenceServiceServicer is not None
    assert evenhand_pb2_grpc.MonitorServicer is not None


def test_an_outcome_tells_an_absent_label_from_a_label_of_zero():
    assert not evenhand_pb2.Outcome(request_id="a").HasField("label")
    assert evenhand_pb2.Outcome(request_id="a", label=0).HasField("label")
