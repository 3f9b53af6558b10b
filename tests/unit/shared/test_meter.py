"""What heartbeats tell about a link."""

import pytest

from shardflow.meter import Meter


def exchange(meter: Meter, took_s: float, padding: int = 0) -> None:
    sequence = meter.next()
    meter.ping(sequence, padding, 10.0)
    meter.pong(sequence, 10.0 + took_s)


def test_before_the_first_heartbeat_nothing_is_known() -> None:
    assert (Meter().rtt_ms, Meter().bytes_per_second, Meter().answered) == (0.0, 0.0, 0)


def test_the_round_trip_is_the_least_of_the_last_32() -> None:
    meter = Meter()
    exchange(meter, 0.05)
    for _ in range(31):
        exchange(meter, 0.09)
    assert meter.rtt_ms == pytest.approx(50.0)
    exchange(meter, 0.09)
    assert meter.rtt_ms == pytest.approx(90.0)


def test_the_bandwidth_is_what_the_padding_took_beyond_the_round_trip() -> None:
    meter = Meter()
    exchange(meter, 0.1)
    exchange(meter, 0.3, padding=1_000_000)
    assert meter.bytes_per_second == pytest.approx(10_000_000)


def test_the_largest_padding_counts() -> None:
    meter = Meter()
    exchange(meter, 0.1)
    exchange(meter, 0.3, padding=1_000_000)
    exchange(meter, 0.101, padding=1_000)
    assert meter.bytes_per_second == pytest.approx(10_000_000)


def test_padding_that_took_no_longer_than_a_heartbeat_tells_no_bandwidth() -> None:
    meter = Meter()
    exchange(meter, 0.1, padding=1_000)
    assert meter.bytes_per_second == 0.0


def test_a_pong_without_a_ping_counts_as_an_answer_only() -> None:
    meter = Meter()
    meter.pong(7, 10.0)
    assert (meter.answered, meter.rtt_ms) == (7, 0.0)
