"""Every module can be imported, in a process of its own: without what another import has left."""

import subprocess
import sys

CODE = """
import importlib, pkgutil, rerank

for module in pkgutil.walk_packages(rerank.__path__, "rerank."):
    if not module.name.endswith(".__main__"):
        importlib.import_module(module.name)
        print(module.name)
"""


def test_every_module_can_be_imported():
    ran = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "rerank.losses" in ran.stdout.split()
