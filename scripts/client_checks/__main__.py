"""`scripts/clients`: clients of other servers ask `rerank serve`, whose answers must be those of `Reranker`."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rerank import Reranker
from scripts.benchmarks.serving_load import server_process
from scripts.command_line import open_app, run_app
from tests.support.small_world import WORDS
from tests.support.tiny_encoders import make_cross_encoder

QUERY = "amber fjord"
DOCUMENTS = ["amber birch", "cedar delta ember", "fjord", "grove heath islet jetty", "amber fjord amber"]
TOLERANCE = 1e-6
CLIENTS = {
    "cohere": ["cohere"],
    "litellm": ["litellm"],
    "langchain": ["langchain-community", "langchain-cohere"],
    "llama_index": [
        "llama-index-core",
        *(f"llama-index-postprocessor-{n}-rerank" for n in ("cohere", "jinaai", "tei")),
    ],
    "haystack": ["haystack-ai", "cohere-haystack", "jina-haystack", "vllm-haystack"],
    "tei": ["tei-client"],
    "rerankers": ["rerankers", "requests"],
}
"""The packages of each client, by the name of its function in `asks`; the first gives its version."""

command = open_app("scripts/clients", "Asks `rerank serve` with the client libraries of other servers.")


@command.default
def check(*clients: str) -> None:
    """Installs the newest versions of these clients, by default of all, asks with each, and prints a table.

    Each has a virtual environment in the user's cache. Exit code 1 if an answer is not that of `Reranker` in Python.
    """
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        model = make_cross_encoder("bert", Path(folder) / "cross-encoder", WORDS)
        ranking = Reranker.load(model, device="cpu").rank(QUERY, DOCUMENTS)
        expected = [(ranked.index, 1 / (1 + np.exp(-ranked.score))) for ranked in ranking]
        with server_process(str(model), "--training.device", "cpu") as address:
            print("| client | version | asked as | result |\n| --- | --- | --- | --- |")
            for name in clients or CLIENTS:
                version, answers = ask(install(name), name, address)
                wrong = [what for what, answer in answers.items() if not is_equal(answer, expected)]
                result = f"**other answer: {', '.join(wrong)}**" if wrong else "equal"
                print(f"| {CLIENTS[name][0]} | {version} | {', '.join(answers)} | {result} |", flush=True)
                failed |= bool(wrong)
    sys.exit(failed)


def install(name: str) -> Path:
    """The interpreter of a client's virtual environment, which has the newest versions of its packages."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    python = cache / "rerank-clients" / CLIENTS[name][0] / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", python.parents[1]], check=True)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade"]
    subprocess.run([*pip, *CLIENTS[name]], check=True)
    return python


def ask(python: Path, name: str, address: str) -> tuple[str, dict[str, list[Any]]]:
    """A client's version, and its answers by what it was asked as; a client that raises has an empty answer."""
    question = {"address": address, "query": QUERY, "documents": DOCUMENTS}
    words = [python, Path(__file__).with_name("asks.py"), name, CLIENTS[name][0]]
    alone = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(words, input=json.dumps(question), stdout=subprocess.PIPE, text=True, env=alone)
    return tuple(json.loads(done.stdout.splitlines()[-1])) if done.returncode == 0 else ("", {"error": []})


def is_equal(answer: Sequence[Any], expected: Sequence[Any]) -> bool:
    """Whether an answer has the expected documents in the expected order, with their scores."""
    order, values = zip(*answer, strict=True) if answer else ((), ())
    best_first, wanted = zip(*expected, strict=True)
    return order == best_first and np.allclose(values, wanted, rtol=0, atol=TOLERANCE)


run_app(command)
