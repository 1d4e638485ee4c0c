"""Tensors on disk that another folder's safetensors files have already: they are linked, not written again."""

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import xxhash
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

TENSORS, LINKS = "state.safetensors", "links.json"


def write_tensors(tensors: Mapping[str, Tensor], folder: Path, other: Path | None = None) -> None:
    """Writes tensors into a new folder.

    Those that a safetensors file of the folder `other` has, with the same type, shape and bytes, are not written: the
    file becomes a hard link, which keeps its content when `other` is replaced, and LINKS says where they are. A file
    that cannot be linked, as on a file system without hard links, is not used.
    """
    found = _linked(folder, other) if other is not None else {}
    links, own, storages = {}, {}, set()
    for name, tensor in tensors.items():
        value = tensor.detach().cpu().contiguous()
        if found and (place := found.get(_identity(value))):
            links[name] = place
            continue
        storage = value.untyped_storage().data_ptr()
        own[name] = value.clone() if storage in storages else value  # safetensors refuses tensors that share memory
        storages.add(storage)
    save_file(own, folder / TENSORS)
    for unused in {file for file, _ in found.values()} - {file for file, _ in links.values()}:
        (folder / unused).unlink()
    if links:
        (folder / LINKS).write_text(json.dumps(links), encoding="utf-8")


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """The tensors that `write_tensors` wrote; raises an error of safetensors, OSError or ValueError for others."""
    tensors: dict[str, Tensor] = load_file(folder / TENSORS)
    if not (folder / LINKS).exists():
        return tensors
    places: dict[str, dict[str, str]] = {}
    for name, (file, tensor) in _expect_links(json.loads((folder / LINKS).read_text(encoding="utf-8"))).items():
        places.setdefault(file, {})[name] = tensor
    for file, names in places.items():
        with safe_open(folder / file, "pt") as content:
            tensors |= {name: content.get_tensor(tensor) for name, tensor in names.items()}
    return tensors


def _linked(folder: Path, other: Path) -> dict[tuple[Any, ...], tuple[str, str]]:
    """What identifies each tensor of the files of `other` -> the name of a link in `folder`, and the tensor's name."""
    found = {}
    for number, file in enumerate(sorted(other.rglob("*.safetensors"))):
        link = folder / f"linked{number}.safetensors"
        with contextlib.suppress(OSError):
            os.link(file, link)
            with safe_open(link, "pt") as content:
                for name in content.keys():  # noqa: SIM118 - it is no mapping
                    found[_identity(content.get_tensor(name))] = link.name, name
    return found


def _identity(tensor: Tensor) -> tuple[Any, ...]:
    digest = xxhash.xxh3_128()
    if tensor.numel():
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return tensor.dtype, tuple(tensor.shape), digest.digest()


def _expect_links(value: Any) -> dict[str, list[str]]:
    if not isinstance(value, dict) or not all(
        isinstance(place, list) and len(place) == 2 and all(isinstance(part, str) for part in place)
        and Path(place[0]).name == place[0]
        for place in value.values()
    ):  # fmt: skip
        raise ValueError(f"{LINKS}: expected the file and the name of each tensor")
    return value
