"""The peak rates of GPUs, from NVIDIA's data sheets: dense bf16 or float16 products that are summed in float32."""

import re

PEAKS = {
    "B200": 2250,
    "GH200": 989,
    "H200": 989,
    "H100 NVL": 835,
    "H100 PCIe": 756,
    "H100": 989,
    "A100": 312,
    "A40": 149.7,
    "A10": 125,
    "L40S": 362,
    "L40": 181,
    "L4": 121,
    "RTX 6000 Ada Generation": 364,
    "RTX A6000": 154.8,
    "GeForce RTX 4090": 165.2,
    "GeForce RTX 3090": 71,
    "V100-SXM2": 125,
    "V100-PCIE": 112,
    "T4": 65,
}
"""A part of the name that CUDA gives a card -> 10^12 operations per second; the first that matches counts."""


def peak_of(name: str) -> float | None:
    """Operations per second of the card of that name; None if it is unknown, or only a part of a card (MIG).

    >>> peak_of("NVIDIA H100 80GB HBM3"), peak_of("NVIDIA L40S"), peak_of("NVIDIA A100-SXM4-40GB MIG 1g.5gb")
    (989000000000000.0, 362000000000000.0, None)
    >>> peak_of("NVIDIA A10G"), peak_of("NVIDIA GeForce RTX 4090 D")
    (None, None)
    """
    if " MIG " in name:
        return None
    for card, peak in PEAKS.items():
        if re.search(rf"(?<![\w]){re.escape(card)}(?![\w]| D\b| Ti\b| Laptop)", name):
            return peak * 1e12
    return None
