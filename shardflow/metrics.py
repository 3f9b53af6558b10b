"""Every metric of the Python services, by the service that exports it: name, unit, labels, buckets, meaning.

Rates are not exported: `rate()` of a counter gives them, e.g. tokens per second is
`rate(shardflow_output_tokens_total[1m])`.
"""

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram, Info

from shardflow import __version__

NETWORK_BUCKETS_S = (
    0.001,
    0.002,
    0.005,
    0.01,
    0.016,
    0.025,
    0.04,
    0.065,
    0.08,
    0.1,
    0.13,
    0.16,
    0.2,
    0.25,
    0.3,
    0.4,
    0.5,
    0.65,
    0.8,
    1,
    2,
    5,
)
COMPUTE_BUCKETS_S = (
    0.0005,
    0.001,
    0.002,
    0.004,
    0.008,
    0.012,
    0.016,
    0.024,
    0.032,
    0.048,
    0.064,
    0.1,
    0.15,
    0.25,
    0.5,
    1,
    2,
    5,
)
FIRST_TOKEN_BUCKETS_S = (0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.25, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30)
INTER_TOKEN_BUCKETS_S = (0.0001, 0.001, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5)
REQUEST_BUCKETS_S = (0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120, 300)
TOKENS_PER_ROUND_BUCKETS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 24, 32, 64)


def _build_info(registry: CollectorRegistry) -> None:
    Info("shardflow_build", "Version of the software that exports these metrics.", registry=registry).info(
        {"version": __version__}
    )


class OrchestratorMetrics:
    """What the orchestrator exports."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self.registry = registry
        _build_info(registry)
        self.requests = Counter(
            "shardflow_requests_total", "Requests ended, by outcome: a finish reason, `cancelled`, or a status code.",
            ["outcome"], registry=registry,
        )  # fmt: skip
        self.active_requests = Gauge("shardflow_active_requests", "Requests running now.", registry=registry)
        self.request_seconds = Histogram(
            "shardflow_request_duration_seconds",
            "From arrival to the last token.",
            buckets=REQUEST_BUCKETS_S,
            registry=registry,
        )
        self.first_token_seconds = Histogram(
            "shardflow_time_to_first_token_seconds", "From arrival to the first committed token.",
            buckets=FIRST_TOKEN_BUCKETS_S, registry=registry,
        )  # fmt: skip
        self.inter_token_seconds = Histogram(
            "shardflow_inter_token_seconds", "Between two tokens of a stream; those of one round come together.",
            buckets=INTER_TOKEN_BUCKETS_S, registry=registry,
        )  # fmt: skip
        self.prompt_tokens = Counter("shardflow_prompt_tokens_total", "Tokens of prompts.", registry=registry)
        self.output_tokens = Counter(
            "shardflow_output_tokens_total", "Tokens generated, by source: target, accepted, corrected or bonus.",
            ["source"], registry=registry,
        )  # fmt: skip
        self.rounds = Counter(
            "shardflow_rounds_total", "Rounds ended, by phase: prefill or decode.", ["phase"], registry=registry
        )
        self.tokens_per_round = Histogram(
            "shardflow_tokens_per_round",
            "Tokens that a decode round committed.",
            buckets=TOKENS_PER_ROUND_BUCKETS,
            registry=registry,
        )
        self.draft_tokens = Counter(
            "shardflow_draft_tokens_total",
            "Guesses sent to the target, by depth (1 is the first) and source: draft, text or recycled.",
            ["depth", "source"],
            registry=registry,
        )
        self.accepted_tokens = Counter(
            "shardflow_accepted_tokens_total",
            "Guesses that the target chose too, by depth and source.",
            ["depth", "source"],
            registry=registry,
        )
        self.round_seconds = Histogram(
            "shardflow_round_seconds", "Length of a decode round.", buckets=NETWORK_BUCKETS_S, registry=registry
        )
        self.round_part_seconds = Histogram(
            "shardflow_round_part_seconds",
            "Parts of a decode round: network, draft, orchestration, and per shard compute, queue and other.",
            ["part", "shard"], buckets=NETWORK_BUCKETS_S, registry=registry,
        )  # fmt: skip
        self.link_rtt_seconds = Gauge(
            "shardflow_link_rtt_seconds", "Least round trip of the last heartbeats.", ["link"], registry=registry
        )
        self.link_up = Gauge("shardflow_link_up", "Whether the stream to a peer is up.", ["link"], registry=registry)
        self.recoveries = Counter(
            "shardflow_recoveries_total",
            "Sessions rebuilt on the shards after a fault, by cause.",
            ["cause"],
            registry=registry,
        )
        self.draft_failures = Counter(
            "shardflow_draft_failures_total", "Rounds that ran without a draft because it failed.", registry=registry
        )


class VerifierMetrics:
    """What a verifier shard exports."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        _build_info(registry)
        self.slices = Counter(
            "shardflow_slices_total",
            "Slices received, by result: applied, dropped, or a status code.",
            ["result"],
            registry=registry,
        )
        self.rows = Counter("shardflow_rows_total", "Rows run through the layers.", registry=registry)
        self.batch_rows = Histogram(
            "shardflow_batch_rows",
            "Rows of one forward pass.",
            buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
            registry=registry,
        )
        self.forward_seconds = Histogram(
            "shardflow_forward_seconds",
            "Length of one forward pass, sampling included.",
            buckets=COMPUTE_BUCKETS_S,
            registry=registry,
        )
        self.queue_seconds = Histogram(
            "shardflow_queue_seconds",
            "From the arrival of a slice to its forward pass.",
            buckets=COMPUTE_BUCKETS_S,
            registry=registry,
        )
        self.queue_depth = Gauge("shardflow_queue_depth", "Slices that wait for a forward pass.", registry=registry)
        self.sessions = Gauge("shardflow_sessions", "Sessions held.", registry=registry)
        self.kv_tokens = Gauge("shardflow_kv_tokens", "Tokens whose keys and values are held.", registry=registry)
        self.kv_bytes = Gauge("shardflow_kv_bytes", "Bytes of keys and values held.", registry=registry)
        self.non_finite = Counter(
            "shardflow_non_finite_total", "Slices that failed because an activation was not finite.", registry=registry
        )


class DraftMetrics:
    """What the draft service exports."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        _build_info(registry)
        self.proposals = Counter(
            "shardflow_draft_proposals_total",
            "Requests for a tree, by result: ok or a status code.",
            ["result"],
            registry=registry,
        )
        self.nodes = Counter("shardflow_draft_nodes_total", "Nodes proposed.", registry=registry)
        self.compute_seconds = Histogram(
            "shardflow_draft_compute_seconds",
            "Model time of one proposal.",
            buckets=COMPUTE_BUCKETS_S,
            registry=registry,
        )
        self.level_seconds = Histogram(
            "shardflow_draft_level_seconds",
            "Model time of one proposal per level of its tree.",
            buckets=COMPUTE_BUCKETS_S,
            registry=registry,
        )
        self.sessions = Gauge("shardflow_draft_sessions", "Sessions held.", registry=registry)
