"""The files with which sentence-transformers reads an encoder and a linear layer on its [CLS] vector."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from torch import nn

from rerank.models.quiet import quiet_transformers
from rerank.utils.integrity import files_below

IDENTITY = "torch.nn.modules.linear.Identity"
"""The activation of the scores in sentence-transformers, whose default is the sigmoid."""

MODULES_FILE = "modules.json"


def write_modules(head: nn.Linear, folder: Path) -> None:
    """Adds modules.json and the modules that it names, Transformer → Pooling → Dense, to a saved encoder's folder."""
    from sentence_transformers import CrossEncoder
    from sentence_transformers.base.modules import Dense, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    dense = Dense(head.in_features, 1, activation_function=nn.Identity(), module_output_name="scores")
    dense.linear.load_state_dict(head.state_dict())
    with quiet_transformers(), TemporaryDirectory() as temporary:
        modules = [Transformer(str(folder)), Pooling(head.in_features, "cls"), dense]
        model = CrossEncoder(modules=modules, activation_fn=nn.Identity(), device="cpu")
        model.save(temporary, create_model_card=False)
        for file in files_below(Path(temporary)):
            target = folder / file.relative_to(temporary)
            if not target.exists():
                target.parent.mkdir(exist_ok=True)
                shutil.copyfile(file, target)
