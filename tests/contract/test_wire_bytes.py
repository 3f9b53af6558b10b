"""The bytes on the wire: a field number or type that changes breaks what is already deployed."""

import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from shardflow.v1 import draft_pb2, link_pb2, orchestrator_pb2, sampling_pb2, tensor_pb2, verifier_pb2
from tests.contract.messages import MESSAGES

GOLDEN = {
    "tensor": "0803120201021a0401020304",
    "sampling": (
        "0d0000003f10021d0000803e250000003e2d0000c03f35000080bf3d00000040420808ac0215000080c048ffffffffffffffffff01"
    ),
    "token logprob": "080515000000bf",
    "hello to a shard": "0a030a0170",
    "slice": (
        "1293010a01731002180320042a020002320306ac023a020100420c0803120201021a0401020304480152016f5a410a350d00"
        "00003f10021d0000803e250000003e2d0000c03f35000080bf3d00000040420808ac0215000080c048ffffffffffffffffff"
        "011002180320012801300662200a017311000000000000f03f1900000000000000402100000000000010402805680d720174"
    ),
    "release": "1a060a01610a0162",
    "ping to a shard": "22050801120100",
    "query": "2a030a0173",
    "verdict": (
        "0a550a01731002180320042a02000130063a14080115000000bf1a07080515000000bf22020708420c0803120201021a0401"
        "0203044a200a017311000000000000f03f1900000000000000402100000000000010402805"
    ),
    "failure": "12170a01731002180320092a016d32090a0173100218032004",
    "pong of a shard": "1a050802120100",
    "session state": "22090a0173100218032004",
    "description of a shard": (
        "0a016d1201641803200428053006380740024809500a580b600c6a0176700e780f8201200a01731201741a01612201722801"
        "310000000000001840390000000000001c4089010000000000003140"
    ),
    "extend": (
        "08011201731a6f0801120302ac021a0c0803120201021a04010203042004280530063a350d0000003f10021d0000803e2500"
        "00003e2d0000c03f35000080bf3d00000040420808ac0215000080c048ffffffffffffffffff0140084809550000003f5d00"
        "00803e6208000080bf000000c06801720174"
    ),
    "forget": "08011201732200",
    "hello to a draft": "2a030a0170",
    "ping to a draft": "32050801120100",
    "tree": "08011201731a130a0301ac02120201001a08000000bf000080bf31000000000000f03f3900000000000000404003",
    "failure of a draft": "08011201732207080912016d1803",
    "pong of a draft": "2a050802120100",
    "description of a draft": "0a016d10021803220164280530063a0176",
    "text": (
        "0a016d1201742a350d0000003f10021d0000803e250000003e2d0000c03f35000080bf3d00000040420808ac0215000080c0"
        "48ffffffffffffffffff0130063a01783a017940014801500a5a04120208016001"
    ),
    "token ids": (
        "0a016d1a050a0301ac022a350d0000003f10021d0000803e250000003e2d0000c03f35000080bf3d00000040420808ac0215"
        "000080c048ffffffffffffffffff0130063a01783a017940014801500a5a04120208016001"
    ),
    "chat": (
        "0a016d220b0a090a04757365721201632a350d0000003f10021d0000803e250000003e2d0000c03f35000080bf3d00000040"
        "420808ac0215000080c048ffffffffffffffffff0130063a01783a017940014801500a5a04120208016001"
    ),
    "no speculation": "0a00",
    "tree speculation": "1a020801",
    "lookup speculation": "2200",
    "auto speculation": "2a00",
    "answer": (
        "0a017212150801120174180325000000bf2a07080515000000bf1a017420022a0a0801100218032004280532670900000000"
        "0000f03f1100000000000000401900000000000010402100000000000020402a200a017311000000000000f03f1900000000"
        "0000004021000000000000104028053006380740014a01095201015a010262040000003f6a0100710000000000002c403807"
    ),
    "status": (
        "0a016d1002180322730a016110011a01722100000000000010402a4e0a016d1201641803200428053006380740024809500a"
        "580b600c6a0176700e780f8201200a01731201741a01612201722801310000000000001840390000000000001c4089010000"
        "000000003140310000000000001840390000000000001c402a270a016110011a016d21000000000000e03f2a110a016d1002"
        "1803220164280530063a017632017030063a017642046e6f6e654a017052200a01731201741a016122017228013100000000"
        "00001840390000000000001c40580b600c680d"
    ),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_bytes(name: str) -> None:
    message = MESSAGES[name]
    assert message.SerializeToString(deterministic=True).hex() == GOLDEN[name]
    assert type(message).FromString(bytes.fromhex(GOLDEN[name])) == message


def test_every_field_has_its_bytes() -> None:
    seen: set[str] = set()
    for message in MESSAGES.values():
        note(message, seen)
    modules = (draft_pb2, link_pb2, orchestrator_pb2, sampling_pb2, tensor_pb2, verifier_pb2)
    fields: set[str] = set()
    for module in modules:
        for descriptor in module.DESCRIPTOR.message_types_by_name.values():
            fields |= names(descriptor)
    assert fields - seen == set()


def names(descriptor: Descriptor) -> set[str]:
    return {field.full_name for field in descriptor.fields}


def note(message: Message, seen: set[str]) -> None:
    """Adds the full names of all fields that are set in a message and those inside it."""
    for field, value in message.ListFields():
        seen.add(field.full_name)
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        if field.message_type is not None and not is_map:
            for inner in value if field.is_repeated else [value]:
                note(inner, seen)


ENUMS = {
    tensor_pb2.ElementType: {"UNSPECIFIED": 0, "F32": 1, "F16": 2, "BF16": 3},
    draft_pb2.DraftKind: {"UNSPECIFIED": 0, "MODEL": 1, "HEAD": 2},
    orchestrator_pb2.TokenSource: {"UNSPECIFIED": 0, "TARGET": 1, "ACCEPTED": 2, "CORRECTED": 3, "BONUS": 4},
    orchestrator_pb2.FinishReason: {"UNSPECIFIED": 0, "STOP": 1, "LENGTH": 2},
}


@pytest.mark.parametrize(("enum", "values"), ENUMS.items(), ids=[enum.DESCRIPTOR.name for enum in ENUMS])
def test_enums(enum: object, values: dict[str, int]) -> None:
    assert {name.split("_", 2)[2]: number for name, number in enum.items()} == values  # type: ignore[attr-defined]


METHODS = {
    "shardflow.v1.OrchestratorService": {"Generate": (False, True), "GetStatus": (False, False)},
    "shardflow.v1.DraftService": {"DescribeDraft": (False, False), "Propose": (True, True)},
    "shardflow.v1.VerifierService": {"Describe": (False, False), "Connect": (True, True)},
}


def test_methods() -> None:
    services = [
        service
        for module in (orchestrator_pb2, draft_pb2, verifier_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
    ]
    assert {
        service.full_name: {m.name: (m.client_streaming, m.server_streaming) for m in service.methods}
        for service in services
    } == METHODS
