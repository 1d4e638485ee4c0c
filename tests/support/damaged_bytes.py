"""Random damage to bytes."""

import random

HOSTILE = [
    b"",
    b"\0",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\x1f\x8b",
    b"PK\x03\x04",
    b"\x93NUMPY\x01\x00",
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b"[]",
    b"{}",
    b"[[]]",
    b"null",
    b"NaN",
    b'"\\ud800"',
    b"9" * 5_000,
    b"1e999",
    b"a = " + b"[" * 50_000,
    b"\n" * 100,
    b"q1 0 d1 " + b"9" * 400,
]
"""Contents that are wrong for most files."""

SMALL = [piece for piece in HOSTILE if len(piece) < 500]
WAYS = ("empty", "cut", "flip", "noise", "insert", "line twice", "line removed", "swapped", "other", "random")


def damaged(content: bytes, rng: random.Random) -> tuple[bytes, str]:
    """Content with random damage, and in words which."""
    way = rng.choice(WAYS)
    size = len(content)
    place = rng.randrange(size + 1)
    lines = content.splitlines(keepends=True)
    new = bytearray(content)
    if way == "empty":
        return b"", way
    if way == "cut":
        return content[:place], f"cut at byte {place} of {size}"
    if way == "flip" and size:
        bits = [rng.randrange(8 * size) for _ in range(rng.choice([1, 1, 2, 8]))]
        for bit in bits:
            new[bit // 8] ^= 1 << bit % 8
        return bytes(new), f"bits {bits} flipped"
    if way == "noise":
        length = rng.choice([1, 8, 64])
        return content[:place] + rng.randbytes(length) + content[place + length :], f"{length} random bytes at {place}"
    if way == "insert":
        piece = rng.choice(SMALL)
        return content[:place] + piece + content[place:], f"{piece[:20]!r} inserted at {place}"
    if way in ("line twice", "line removed") and lines:
        number = rng.randrange(len(lines))
        lines[number : number + 1] = [lines[number]] * 2 if way == "line twice" else []
        return b"".join(lines), f"{way}: {number + 1}"
    if way == "swapped" and size > 1:
        first, second = sorted(rng.sample(range(size), 2))
        return content[second:] + content[first:second] + content[:first], f"parts at {first}, {second} swapped"
    if way == "random":
        return rng.randbytes(rng.randrange(300)), "random bytes"
    piece = rng.choice(HOSTILE)
    return piece, f"replaced by {piece[:20]!r} ({len(piece)} bytes)"
