"""Retrieval takes the memory of retrieval."""

import subprocess
import sys


def test_retrieval_does_not_load_torch():
    code = "import sys, rerank.cli.retrieve, rerank.jobs.retrieve; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
