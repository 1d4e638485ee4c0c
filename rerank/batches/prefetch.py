"""Builds the next batch in the background while the model works on this one."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Built = TypeVar("Built")


def prefetch(items: Iterable[Item], build: Callable[[Item], Built]) -> Iterator[tuple[Item, Built]]:
    """Each item with what `build` makes of it, in order; the next one is built while the caller works on this one."""
    with ThreadPoolExecutor(max_workers=1) as background:
        waiting = None
        for item in items:
            following = item, background.submit(build, item)
            if waiting is not None:
                yield waiting[0], waiting[1].result()
            waiting = following
        if waiting is not None:
            yield waiting[0], waiting[1].result()
