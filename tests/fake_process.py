"""A process that is healthy on a port and writes its name to a file when it is told to end.

Usage: python fake_process.py NAME PORT FILE [stubborn]
"""

import os
import signal
import sys
from concurrent import futures
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc


def main(name: str, port: str, file: str, manner: str = "polite") -> None:
    """Runs until SIGTERM; a stubborn one does not end then either."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    server = grpc.server(futures.ThreadPoolExecutor(2))
    servicer = health.HealthServicer()
    servicer.set("", health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    signal.sigwait([signal.SIGTERM])
    with Path(file).open("a") as log:
        log.write(f"{name}\n")
    if manner == "stubborn":
        signal.sigwait([signal.SIGTERM])
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
