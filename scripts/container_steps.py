"""Runs the steps of the Dockerfile without a container daemon, so that they are known to work. Needs Linux and root.

    python3 -m scripts.container_steps [NAME=VALUE ...] [COMMAND ...]

NAME=VALUE are build arguments. COMMAND is run as in the container, with the Dockerfile's ENTRYPOINT before it, in its
WORKDIR, by its USER; by default it is CMD. The variables that choose a package index or a proxy (PIP_*, UV_*, *_PROXY,
SSL_CERT_FILE) reach the steps.

Each stage is a new root: an overlay of this machine's file system without what HIDDEN names, in a mount namespace of
its own. It stands for the base image: FROM is not downloaded, and this machine must have a /usr/bin/python3 of the same
version. Nothing is left when it ends.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from string import Template

ROOT = Path(__file__).parents[1]
HIDDEN = ("root", "home", "usr/local", "usr/bin/java")
"""What this machine may have and the base image does not."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
INSIDE = "RERANK_CONTAINER_STEPS"
"""The variable with the folder of the roots, set in the mount namespace."""
ARGUMENT = re.compile(r"[a-z_]+=")


@dataclass
class Stage:
    """A stage of the build: its root, and what the instructions so far have set."""

    root: Path
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": PATH})
    arguments: dict[str, str] = field(default_factory=dict)
    folder: str = "/"
    user: str = "root"
    entry: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)

    def run(self, words: Sequence[str]) -> int:
        """The exit code of a command in this stage."""
        inside = 'cd "$0" && exec "$@"'
        home = {} if self.user == "root" else {"HOME": f"/home/{self.user}"}
        program = ["chroot", f"--userspec={self.user}", str(self.root), "/bin/sh", "-c", inside, self.folder, *words]
        return subprocess.run(program, env=_passed_on() | home | self.arguments | self.environment).returncode


def instructions(dockerfile: str) -> Iterator[tuple[str, str]]:
    r"""The instructions of a Dockerfile with their arguments, lines that continue joined, comments left out.

    >>> list(instructions("# base\nFROM slim AS build\nRUN one \\\n    && two\n"))
    [('FROM', 'slim AS build'), ('RUN', 'one && two')]
    """
    lines = "\n".join(line for line in dockerfile.splitlines() if not line.lstrip().startswith("#"))
    for line in re.sub(r"\\\n\s*", "", lines).splitlines():
        if line.strip():
            name, _, rest = line.strip().partition(" ")
            yield name.upper(), rest.strip()


def build(dockerfile: str, given: Mapping[str, str], folder: Path) -> Stage:
    """Follows the instructions and returns the last stage; raises SystemExit for a step that fails."""
    stages: dict[str, Stage] = {}
    for name, rest in instructions(dockerfile):
        print(f"{name} {rest}", flush=True)
        if name == "FROM":
            stage = Stage(_new_root(folder / str(len(stages))))
            stages[rest.partition(" AS ")[2] or "last"] = stage
            continue
        known = stage.arguments | stage.environment
        match name:
            case "ARG":
                key, _, default = rest.partition("=")
                stage.arguments[key] = given.get(key, default)
            case "ENV":
                key, _, value = rest.partition("=")
                stage.environment[key] = Template(value).safe_substitute(known)
            case "WORKDIR":
                stage.folder = rest
                (stage.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
            case "COPY":
                _copy(rest.split(), stage, stages)
            case "RUN":
                if code := stage.run(["/bin/sh", "-c", rest]):
                    sys.exit(f"container_steps: exit code {code}: RUN {rest}")
            case "USER":
                stage.user = rest
            case "ENTRYPOINT":
                stage.entry = json.loads(rest)
            case "CMD":
                stage.command = json.loads(rest)
            case "EXPOSE":
                pass
            case _:
                sys.exit(f"container_steps: {name}: not an instruction that this script knows")
    return stage


def _new_root(folder: Path) -> Path:
    upper, work, root = (folder / name for name in ("upper", "work", "root"))
    for path in (upper, work, root):
        path.mkdir(parents=True)
    _call("mount", "-t", "overlay", "overlay", "-o", f"lowerdir=/,upperdir={upper},workdir={work}", str(root))
    for name in HIDDEN:
        path = root / name
        if path.is_dir() and not path.is_symlink():
            _call("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(path))
        elif os.path.lexists(path):
            path.unlink()
    for name in ("proc", "sys", "dev"):
        _call("mount", "--rbind", f"/{name}", str(root / name))
    _call("mount", "-t", "tmpfs", "tmpfs", str(root / "tmp"))
    return root


def _copy(words: list[str], stage: Stage, stages: Mapping[str, Stage]) -> None:
    origin = stages[words.pop(0).removeprefix("--from=")].root if words[0].startswith("--from=") else ROOT
    *sources, target = words
    place = stage.root / str(PurePosixPath(stage.folder, target)).lstrip("/")
    for source in sources:
        path = origin / source.lstrip("/")
        into = place / path.name if target.endswith("/") or target == "." else place
        into.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.copytree(path, into, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, into)


def _passed_on() -> dict[str, str]:
    chosen = re.compile(r"(PIP|UV)_.*|\w+_PROXY|\w+_proxy|SSL_CERT_FILE|TERM")
    return {name: value for name, value in os.environ.items() if chosen.fullmatch(name)}


def _call(*words: str) -> None:
    subprocess.run(words, check=True)


def main(words: Sequence[str]) -> int:
    """Builds and runs the command; returns its exit code."""
    if folder := os.environ.pop(INSIDE, ""):
        given = dict(word.split("=", 1) for word in words if ARGUMENT.match(word))
        stage = build((ROOT / "Dockerfile").read_text(encoding="utf-8"), given, Path(folder))
        command = [*stage.entry, *([word for word in words if not ARGUMENT.match(word)] or stage.command)]
        print(f"{stage.user}$ {shlex.join(command)}", flush=True)
        return stage.run(command)
    # In a mount namespace of its own: its mounts are gone when it ends, so that only our files are removed.
    with tempfile.TemporaryDirectory(prefix="container-steps-") as folder:
        again = ["unshare", "--mount", "--propagation", "private", sys.executable, "-m", "scripts.container_steps"]
        return subprocess.run([*again, *words], env=os.environ | {INSIDE: folder}).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
