"""Java is silent, leaves Ctrl-C to Python, and says when its memory is too small."""

import os
import subprocess
import sys

from tests.support.patience import SECONDS


def run(program, folder, options=""):
    """Runs a Python program with JAVA_TOOL_OPTIONS."""
    environment = os.environ | ({"JAVA_TOOL_OPTIONS": options} if options else {})
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, env=environment)


def test_the_start_prints_nothing_and_leaves_the_interrupt_to_python(tmp_path):
    program = (
        "import os, signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a job in the background begins without it
        "from rerank.retrieval.java import java_class\n"
        "java_class('io.anserini.search.SimpleSearcher')\n"
        "assert 'JAVA_HOME' not in os.environ or os.environ['JAVA_HOME']\n"
        "try:\n    os.kill(os.getpid(), signal.SIGINT)\n    import time; time.sleep(10)\n"
        "except KeyboardInterrupt:\n    raise SystemExit(7)\n"
    )
    done = run(program, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")


def test_the_class_path_and_the_options_of_an_application_stay(tmp_path):
    program = (
        "import jnius_config\n"
        "jnius_config.add_classpath('mine.jar')\n"
        "jnius_config.add_options('-Dmine=1')\n"
        "from rerank.retrieval.java import java_class\n"
        "java_class('io.anserini.search.SimpleSearcher')\n"
        "properties = java_class('java.lang.System')\n"
        "print(properties.getProperty('mine'), *properties.getProperty('java.class.path').split(':')[:1])\n"
    )
    done = run(program, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 mine.jar\n", "")


INDEX = """
from pathlib import Path
from rerank.cli.main import run_and_exit
from rerank.data.types import Document
from rerank.retrieval.lucene_index import build_index
run_and_exit(lambda: build_index([Document("d", "", "wing")], Path("index")))
"""


def test_a_heap_that_is_too_small_ends_the_process_with_a_line(tmp_path):
    """Some threads of Lucene end, and the others would wait for them forever."""
    done = run(INDEX, tmp_path, "-Xmx5m")
    line = "rerank: Java ran out of memory: set JAVA_TOOL_OPTIONS=-Xmx8g, or another size, to give it more"
    assert (done.returncode, done.stdout) == (3, "")
    assert line in done.stderr.splitlines()  # Java's own lines may come after it
    assert not [path for path in tmp_path.iterdir() if not path.name.startswith(".index")]  # no file of a crash


def test_why_java_cannot_start_is_shown(tmp_path):
    done = run(INDEX, tmp_path, "-Xmx1k")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Too small maximum heap" in done.stderr
