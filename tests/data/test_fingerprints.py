"""Equal ids have equal fingerprints, wherever they are in an array; others have others."""

import random

import numpy as np
import pyarrow as pa

from rerank.data.fingerprints import fingerprints, may_repeat


def test_fingerprints_tell_ids_of_any_length_apart():
    draw = random.Random(0)
    ids = [bytes(draw.choices(b"ab\xff", k=draw.randint(1, 40))) for _ in range(2000)]
    ids += [b"", b"a" * 8, b"a" * 9, b"a" * 16, b"\0", b"\0\0"]
    found = fingerprints(pa.array(ids, pa.binary())).tolist()
    assert len(set(zip(ids, found, strict=True))) == len(set(ids)) == len(set(found))
    shifted = fingerprints(pa.array([b"another", *ids], pa.binary())[1:])
    assert shifted.tolist() == found
    assert len(fingerprints(pa.array([], pa.binary()))) == 0


def test_a_document_may_repeat_within_a_query_only():
    documents = fingerprints(pa.array([b"d1", b"d2", b"d1", b"d2"], pa.binary()))
    assert not may_repeat(np.array([0, 0, 1, 1], np.int32), documents)
    assert may_repeat(np.array([0, 0, 0, 1], np.int32), documents)
