"""`scripts/docs --run`: runs the code of README, CONTRIBUTING, docs/ and examples/ against small stand-ins."""

import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from rerank.utils.errors import UserError
from scripts.command_line import open_app, run_app
from scripts.pages.blocks import blocks_of
from scripts.pages.processes import in_process
from scripts.pages.run import Report, finish, make_inputs, make_runs, run_page
from scripts.pages.world import TRAININGS

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", "docs/**/*.md", "examples/*.py")
IMPORTED = ("torch", "transformers", "sentence_transformers", "scipy.stats", "rerank.cli.app", "scripts.pages.run")
"""What a process of a page finds imported: it takes seconds."""

command = open_app("scripts/docs --run", "Runs the code of the documentation against small stand-ins.")


@command.default
def run(*pages: Path, processes: int = 2) -> None:
    """Runs the code of these pages, by default of all; exit code 1 if a block fails.

    Parameters
    ----------
    processes
        Pages that run at the same time.
    """
    begin = time.monotonic()
    found = [blocks for page in _chosen(pages) if (blocks := blocks_of(ROOT, page))]
    found.sort(key=lambda blocks: -sum(not block.not_run for block in blocks))  # none takes long at the end
    os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(IMPORTED))
    failed = False
    with tempfile.TemporaryDirectory(prefix="rerank-docs-") as folder, ThreadPoolExecutor(processes) as pool:
        home, world = Path(folder), Path(folder) / "world"
        submit = partial(pool.submit, in_process, context)
        try:
            submit(make_inputs, world, ROOT).result()
            for made in [submit(make_runs, world, group) for group in TRAININGS]:
                made.result()
            submit(finish, world).result()
            print(f"stand-ins: {time.monotonic() - begin:.0f} s", flush=True)
            running = [submit(run_page, blocks, world, home / f"page{number}") for number, blocks in enumerate(found)]
            for future in running:
                failed |= show(future.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise
    print(f"{time.monotonic() - begin:.0f} s")
    sys.exit(failed)


def show(report: Report) -> bool:
    """Prints what came of a page, and gives whether a block failed."""
    print(f"{report.page:36} {report.ran:3} run {report.not_run:3} not {report.seconds:6.1f} s of a core", flush=True)
    for failure in report.failures:
        print(failure, file=sys.stderr, flush=True)
    return bool(report.failures)


def _chosen(pages: Sequence[Path]) -> list[Path]:
    """The pages that are named, or all. Raises UserError for one that does not exist."""
    for page in pages:
        if not page.is_file():
            raise UserError(f"{page}: no such page; expected a file such as README.md or docs/guides/search.md")
    return [page.resolve() for page in pages] or sorted(page for pattern in PAGES for page in ROOT.glob(pattern))


if __name__ == "__main__":
    run_app(command)
