"""Measures the shipped head on questions that no training text came from: agreement, tokens a round, level cost.

Of a file in the Spec-Bench format the questions whose id, halved and rounded down, is odd; first turns, greedy, 60
tokens. Writes `results/draft.json`; exits 1 if a bar fails. Run from the top: `python -m benchmarks.bench_draft FILE`.
"""

import json
import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch

from shardflow.demo.receipt import receipt
from shardflow.engine.distill.evaluation import agreement, judge
from shardflow.engine.distill.generate import Request, generate
from shardflow.engine.distill.heads import Apprentice
from shardflow.engine.distill.talks import Talk
from shardflow.engine.drafts import load_drafter
from shardflow.engine.loader import load_slice
from shardflow.tokenizer import Tokenizer
from shardflow.topology import DEFAULT_DRAFT, DEFAULT_MODEL

RESULT = Path(__file__).resolve().parent / "results" / "draft.json"
TOKENS, PER_KIND, LONGEST = 60, 2, 800
RTT_MS = 86.0
KINDS = ("translation", "summarization", "qa", "math_reasoning", "rag")  # all others are chat


def main(questions: Path) -> int:
    scheduling = _real_time()
    target = load_slice(DEFAULT_MODEL, None)
    talks = _answers(target, questions)
    figures = judge(load_drafter(DEFAULT_DRAFT, DEFAULT_MODEL, max_tokens=1024), target, talks, RTT_MS)
    apprentice = Apprentice.read(DEFAULT_DRAFT, DEFAULT_MODEL, "cpu")
    result = {"figures": {"agreement": agreement(apprentice, talks), "shapes": figures}}
    bars = judge_bars(result["figures"])
    conditions = {
        "scheduling": scheduling, "tokens": TOKENS, "temperature": 0, "questions": len(talks), "rtt_ms": RTT_MS,
        "answer_tokens": sum(len(talk.answer) for talk in talks), "longest_prompt": LONGEST,
        "which": "first turns of questions with an odd id // 2, the first of each of six kinds",
    }  # fmt: skip
    RESULT.write_text(json.dumps(result | {"bars": bars, "receipt": receipt(**conditions)}, indent=2) + "\n")
    for name, bar in bars.items():
        print(f"{name:36}{bar['value']:>10.3f}   need {bar['need']:<10}{'holds' if bar['holds'] else 'FAILS'}")
    return 0 if all(bar["holds"] for bar in bars.values()) else 1


def judge_bars(figures: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Each bar with its value."""
    shares, tree = figures["agreement"], figures["shapes"]["tree_31"]
    floors = {
        "first_choice_right_depth_1": (shares["first_1"][0], 0.45),
        "first_choice_right_depth_3": (shares["first_1"][2], 0.35),
        "among_first_four_depth_1": (shares["first_4"][0], 0.68),
        "tokens_a_round_tree_31": (tree["tokens_per_round"], 2.3),
    }
    bars = {
        name: {"value": value, "need": f">= {need}", "holds": value >= need} for name, (value, need) in floors.items()
    }
    level = tree["level_ms"]
    return bars | {"draft_level_ms": {"value": level, "need": "<= 3.5", "holds": level <= 3.5}}


def _answers(target: Any, questions: Path) -> list[Talk]:
    tokenizer, taken, requests = Tokenizer(DEFAULT_MODEL), defaultdict[str, int](int), list[Request]()
    for line in questions.read_text().splitlines():
        question = json.loads(line)
        kind = question["category"] if question["category"] in KINDS else "chat"
        prompt = tokenizer.encode_chat([{"role": "user", "content": question["turns"][0]}])
        if question["question_id"] // 2 % 2 and len(prompt) <= LONGEST and taken[kind] < PER_KIND:
            taken[kind] += 1
            requests.append(Request(prompt, 0.0))
    made = generate(
        target, requests, seats=16, max_prompt=LONGEST, max_answer=TOKENS, eos_ids=tokenizer.eos_ids,
        random=torch.Generator(),
    )  # fmt: skip
    return [talk for talk in made if len(talk.answer) > 1]


def _real_time() -> str:
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except PermissionError:
        return "normal"
    return "real-time"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
