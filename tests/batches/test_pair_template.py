import numpy as np
import pytest

from rerank.batches.pair_template import pair_template
from rerank.utils.errors import UserError
from tests.support.tiny_encoders import KINDS, make_tokenizer

WORDS = ["the", "cat", "sat", "on", "a", "mat", "boundary", "layer", "wing"]
TEXTS = [
    ("cat", "the cat sat on a mat"),
    ("boundary layers over the wing", "Zebras, (mostly) grazing;\n\n on  a mat. "),
    ("a", "b b a"),
    (" the mat?", "naïve 日本 cat"),
]


def assert_splices(tokenizer) -> None:
    template = pair_template(tokenizer)
    for query, passage in TEXTS:
        q, p = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in (query, passage))
        parts = (template.prefix, q, template.middle, p, template.suffix)
        expected = tokenizer(query, passage)
        assert [token for part in parts for token in part] == expected["input_ids"]
        assert (template.token_types is not None) == ("token_type_ids" in expected)
        if template.token_types is not None:
            types = np.repeat(template.token_types, [len(part) for part in parts])
            assert types.tolist() == expected["token_type_ids"]


@pytest.mark.parametrize("kind", KINDS)
def test_spliced_pair_is_what_the_tokenizer_gives(kind: str) -> None:
    assert_splices(make_tokenizer(kind, WORDS))


def test_tokenizer_that_joins_otherwise_is_an_error() -> None:
    from tokenizers import processors

    tokenizer = make_tokenizer("bert", WORDS)
    special = [("[CLS]", tokenizer.cls_token_id), ("[SEP]", tokenizer.sep_token_id)]
    for pair in ("[CLS]:0 $B:0 [SEP]:0 $A:1", "$A:0 $B:1 [SEP]:1 [CLS]:0"):
        tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair=pair, special_tokens=special
        )
        with pytest.raises(UserError, match=r"joins two texts as .* use another encoder"):
            pair_template(tokenizer)
