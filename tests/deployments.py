"""States of deployments, as an orchestrator would tell them."""

from shardflow import __version__
from shardflow.v1 import draft_pb2, link_pb2, tensor_pb2, verifier_pb2
from shardflow.v1 import orchestrator_pb2 as pb

RELAY = "r:9000"


def healthy() -> pb.GetStatusResponse:
    """Two shards of 15 layers, the second behind a relay, and a draft; everything as it should be."""
    draft = draft_pb2.DescribeDraftResponse(model="head", vocab_size=100, version=__version__)
    return pb.GetStatusResponse(
        model="tiny", num_layers=30, max_session_tokens=4096, active_requests=1, version=__version__,
        default_speculation="linear:2", output_tokens=900, drafted_tokens=400, accepted_tokens=120,
        shards=[
            pb.ShardStatus(
                address="v0:50051", connected=True, describe=shard(0, 15), clock_offset_ms=2, clock_error_ms=1
            ),
            pb.ShardStatus(
                address="v1:50051", relay=RELAY, connected=True, describe=shard(15, 30),
                clock_offset_ms=-20, clock_error_ms=43,
            ),
        ],
        draft=pb.DraftStatus(address="d:50051", connected=True, model="head", acceptance=0.3, describe=draft),
        links=[
            link("orchestrator", "shard 0", "v0:50051", 0.5, 1e9),
            link("orchestrator", "shard 1", "v1:50051", 86.2, 12.5e6, RELAY),
            link("orchestrator", "draft", "d:50051", 0.4, 0.0),
            link("shard 0", "shard 1", "v1:50051", 86.4, 12.25e6, RELAY),
        ],
    )  # fmt: skip


def shard(first: int, last: int) -> verifier_pb2.DescribeResponse:
    """What a shard of layers [first, last) of 30 says of itself."""
    return verifier_pb2.DescribeResponse(
        model="tiny", model_digest="0123456789abcdef", first_layer=first, last_layer=last, num_layers=30,
        dtype=tensor_pb2.ELEMENT_TYPE_BF16, max_session_tokens=4096, max_sessions=64, sessions=2, kv_tokens=2622,
        kv_bytes_per_token=23040, version=__version__,
    )  # fmt: skip


def link(
    dialler: str, peer: str, address: str, rtt_ms: float, bytes_per_second: float, relay: str = ""
) -> link_pb2.LinkStatus:
    """A link that is up."""
    return link_pb2.LinkStatus(
        dialler=dialler, peer=peer, address=address, relay=relay, connected=True, rtt_ms=rtt_ms,
        bytes_per_second=bytes_per_second,
    )  # fmt: skip
