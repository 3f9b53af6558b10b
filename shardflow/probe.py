"""`python -m shardflow.probe HOST:PORT` ends with 0 if the gRPC server there says that it is serving, else with 1.

The health check of the containers. It runs every few seconds beside a busy model, so it imports little.
"""

import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

TIMEOUT_S = 4.0
_USAGE = 64


def check(address: str) -> str | None:
    """Why the server at `address` (host:port) is not serving, or None if it is."""
    # Not through a proxy of the environment: what is asked is the process behind this very address.
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S)  # type: ignore[attr-defined]
        except grpc.RpcError as error:
            return f"{error.code().name}: {error.details()}"
    serving = answer.status == health_pb2.HealthCheckResponse.SERVING
    return None if serving else health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)


def main(arguments: list[str]) -> int:
    """Exit status for the command line `arguments`."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m shardflow.probe HOST:PORT\n")
        return _USAGE
    problem = check(arguments[0])
    if problem is not None:
        sys.stderr.write(f"{arguments[0]}: {problem}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
