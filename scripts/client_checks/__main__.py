"""`scripts/clients`: clients of other servers ask `rerank serve`, whose answers must be those of `Reranker`."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rerank import Reranker
from scripts.benchmarks.serving_load import server_process
from scripts.client_checks.asks import BEST, CUT, EQUAL, RAW, REFUSED, TOKENS, TOP
from scripts.command_line import open_app, run_app
from tests.support.small_world import WORDS
from tests.support.tiny_encoders import make_cross_encoder

QUERY = "amber fjord"
DOCUMENTS = ["amber birch", "cedar delta ember", "fjord", "grove heath islet jetty", "amber fjord amber"]
LONG = " ".join(WORDS * 1000)
TOLERANCE = 1e-6
REASONS = ("is not computed here", "allows no truncation", "unknown field")
"""What an error of the server says of an option that it refuses."""
CLIENTS = {
    "cohere": ["cohere"],
    "litellm": ["litellm"],
    "voyageai": ["voyageai"],
    "infinity": ["infinity_client"],
    "together": ["together"],
    "xinference": ["xinference-client"],
    "openai": ["openai"],
    "langchain": ["langchain-community", "langchain-cohere", "langchain-voyageai", "infinity_client"],
    "llama_index": [
        "llama-index-core",
        *(f"llama-index-postprocessor-{n}-rerank" for n in ("cohere", "jinaai", "tei", "siliconflow", "xinference")),
    ],
    "haystack": [
        "haystack-ai",
        *(f"{name}-haystack" for name in ("cohere", "jina", "vllm")),
    ],
    "tei": ["tei-client"],
    "rerankers": ["rerankers", "requests"],
}
"""The packages of each client, by the name of its function in `asks`; the first gives its version."""

command = open_app("scripts/clients", "Asks `rerank serve` with the client libraries of other servers.")


@command.default
def check(*clients: str) -> None:
    """Installs the newest versions of these clients, by default of all, asks with each, and prints a table.

    Each has a virtual environment in the user's cache. Exit code 1 if an answer is not that of `Reranker` in Python, or
    if an option that the server does not compute is not refused.
    """
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        model = make_cross_encoder("bert", Path(folder) / "cross-encoder", WORDS)
        expected = expectations(Reranker.load(model, device="cpu"))
        with server_process(str(model), "--training.device", "cpu") as address:
            print("| client | version | asked as | equal with | refused |\n| --- | --- | --- | --- | --- |")
            for name in clients or CLIENTS:
                version, cases = ask(install(name), name, address)
                wrong = [case for case in cases if not holds(case, expected)]
                print(row(CLIENTS[name][0], version, cases), flush=True)
                for case in wrong:
                    print(f"{name}, {case.asked_as}, {case.options}: expected {case.expected}, got {case.answer}")
                failed |= bool(wrong) or not cases
    sys.exit(failed)


class Case(NamedTuple):
    """What a client was asked as, with which options, what is expected, and its answer or the line of its error."""

    asked_as: str
    options: str
    expected: str
    answer: Any


def expectations(reranker: Reranker) -> dict[str, list[tuple[int, float]]]:
    """The index and score of each document, best first, by what is expected."""
    ranking = [(ranked.index, ranked.score) for ranked in reranker.rank(QUERY, DOCUMENTS)]
    equal = [(index, _sigmoid(score)) for index, score in ranking]
    reranker.model.max_doc_tokens = TOKENS
    cut = [(ranked.index, _sigmoid(ranked.score)) for ranked in reranker.rank(QUERY, DOCUMENTS)]
    return {EQUAL: equal, BEST: equal[:TOP], RAW: ranking, CUT: cut}


def _sigmoid(score: float) -> float:
    return float(1 / (1 + np.exp(-score)))


def holds(case: Case, expected: dict[str, list[tuple[int, float]]]) -> bool:
    """Whether the answer of a case is the expected one; a refusal must have the server's reason."""
    if isinstance(case.answer, str):
        return case.expected == REFUSED and any(reason in case.answer for reason in REASONS)
    return case.expected != REFUSED and is_equal(case.answer, expected[case.expected])


def row(package: str, version: str, cases: Sequence[Case]) -> str:
    """The row of a client: the options with which its answers are equal, and the options that the server refuses."""

    def listed(values: Iterable[str]) -> str:
        return ", ".join(dict.fromkeys(filter(None, values)))

    equal = listed(case.options for case in cases if case.expected != REFUSED)
    refused = listed(case.options for case in cases if case.expected == REFUSED)
    return f"| {package} | {version} | {listed(case.asked_as for case in cases)} | {equal} | {refused} |"


def install(name: str) -> Path:
    """The interpreter of a client's virtual environment, which has the newest versions of its packages."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    python = cache / "rerank-clients" / CLIENTS[name][0] / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", python.parents[1]], check=True)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade"]
    subprocess.run([*pip, *CLIENTS[name]], check=True)
    return python


def ask(python: Path, name: str, address: str) -> tuple[str, list[Case]]:
    """A client's version, and its cases; a client that does not start has none."""
    question = {"address": address, "query": QUERY, "documents": DOCUMENTS, "long": LONG}
    words = [python, Path(__file__).with_name("asks.py"), name, CLIENTS[name][0]]
    alone = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(words, input=json.dumps(question), stdout=subprocess.PIPE, text=True, env=alone)
    version, found = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else ("", [])
    return version, [Case(*case) for case in found]


def is_equal(answer: Sequence[Any], expected: Sequence[Any]) -> bool:
    """Whether an answer has the expected documents in the expected order, with their scores."""
    order, values = zip(*answer, strict=True) if answer else ((), ())
    best_first, wanted = zip(*expected, strict=True)
    return order == best_first and np.allclose(values, wanted, rtol=0, atol=TOLERANCE)


run_app(command)
