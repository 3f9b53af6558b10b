"""Reads the draft's answer, which may be wrong in any way, into the tree that it stands for."""

import math

from services.orchestrator.guessing.drafted import Drafted
from shardflow.errors import ShardflowError
from shardflow.v1 import draft_pb2


def read_tree(tree: draft_pb2.Tree, max_nodes: int, vocab_size: int) -> Drafted:
    """From the draft's answer, without nodes outside the target's vocabulary and what hangs below them.

    ShardflowError says what is wrong with a tree that was to have at most `max_nodes` nodes.
    """
    if fault := _fault(tree, max_nodes):
        raise ShardflowError(f"draft: {fault}")
    confidences = [math.exp(logprob) for logprob in tree.logprobs]
    if not tree.tokens or max(tree.tokens) < vocab_size:
        return Drafted(tree.tokens, tree.parents, confidences)
    kept = {-1: -1}
    for node, (token, parent) in enumerate(zip(tree.tokens, tree.parents, strict=True)):
        if token < vocab_size and parent in kept:
            kept[node] = len(kept) - 1
    nodes = list(kept)[1:]
    parents = [kept[tree.parents[node]] for node in nodes]
    return Drafted([tree.tokens[node] for node in nodes], parents, [confidences[node] for node in nodes])


def _fault(tree: draft_pb2.Tree, max_nodes: int) -> str | None:
    if len(tree.tokens) > max_nodes:
        return f"{len(tree.tokens)} nodes where at most {max_nodes} were asked for"
    if not len(tree.tokens) == len(tree.parents) == len(tree.logprobs):
        return f"{len(tree.parents)} parents and {len(tree.logprobs)} log-probabilities for {len(tree.tokens)} nodes"
    if any(not -1 <= parent < node for node, parent in enumerate(tree.parents)):
        return f"parents {list(tree.parents)} do not come before their children"
    if not all(logprob <= 1e-3 for logprob in tree.logprobs):  # NaN is not either
        return "log-probabilities that are none"
    return None
