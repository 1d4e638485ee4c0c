"""Prefetching: builds the next item, such as a batch, in a background thread."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Built = TypeVar("Built")


def prefetch(items: Iterable[Item], build: Callable[[Item], Built]) -> Iterator[tuple[Item, Built]]:
    """Yields each item with `build(item)`, in order; the next one is built while the caller works on this one."""
    with ThreadPoolExecutor(max_workers=1) as background:
        current = None
        for item in items:
            following = item, background.submit(build, item)
            if current is not None:
                yield current[0], current[1].result()
            current = following
        if current is not None:
            yield current[0], current[1].result()
