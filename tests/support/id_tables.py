"""A table of ids that is not in a file."""

from collections.abc import Sequence

import numpy as np

from rerank.data.id_table import IdTable, make_id_table


def id_table(ids: Sequence[str]) -> IdTable:
    names = [item_id.encode() for item_id in ids]
    return make_id_table(np.frombuffer(b"".join(names), np.uint8), np.cumsum([0, *map(len, names)]))
