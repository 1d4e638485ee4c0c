"""Templates, of a tokenizer or given as text: the parts put together are the tokens of the whole text."""

import numpy as np
import pytest

from rerank.batches.passages import PassageBuilder
from rerank.batches.templates import check_text_template, fill, open_template, pair_template, text_template
from rerank.data.tokens import Tokenisation, make_store, open_token_store, tokenise
from rerank.utils.errors import UserError
from tests.support.small_world import WORDS
from tests.support.tiny_decoders import make_tokenizer
from tests.support.tiny_encoders import KINDS
from tests.support.tiny_encoders import make_tokenizer as make_encoder_tokenizer

QWEN = (
    "<|im_start|>system\nJudge the document.<|im_end|>\n<|im_start|>user\n<Instruct>: Given a web search query, "
    "retrieve relevant passages\n<Query>: {query}\n<Document>: {document}<|im_end|>\n<|im_start|>assistant\n<think>"
    "\n\n</think>\n\n"
)
TEMPLATES = {
    "qwen": QWEN,
    "plain": "<Query>: {query}\n<Document>: {document}",
    "prompt after": "query: {query} \ndocument: {document} \nYou are a search relevance expert.",
    "lines": "Query:\n {query}\n\nDocument:\n {document}\nRelevance:",
    "one line": "{query} {document}",
    "line breaks": "Query:\n{query}\n\nDocument:\n{document}\nRelevance:",
}
DECODERS = ["qwen3", "llama", "gemma"]
QUERIES = ["amber", "what is amber birch?", "naïve 日本 (x)", "3 amber!?)", "A"]
DOCUMENTS = ["birch cedar", "The cedar. It grows.", "1990 (a)", "wharf 🌲.", 'say "river"', "."]


def spliced(template, tokenizer, query, document):
    texts = [template.query_lead + query, template.document_lead + document]
    return [int(token) for piece in template.pieces(*tokenise(texts, tokenizer)) for token in piece]


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("kind", DECODERS)
def test_parts_are_the_tokens_of_the_whole_text(kind, name):
    if (kind, name) == ("llama", "line breaks"):
        pytest.skip("its tokenizer merges a line break with the text after it")
    tokenizer, text = make_tokenizer(kind, WORDS), TEMPLATES[name]
    template = text_template(tokenizer, text)
    for query in QUERIES:
        for document in DOCUMENTS:
            expected = tokenizer(text.replace("{query}", query).replace("{document}", document))["input_ids"]
            assert spliced(template, tokenizer, query, document) == expected, (query, document)


@pytest.mark.parametrize("kind", ["bert", "roberta", "modernbert", "xlm-r"])
def test_encoders_take_templates_too(kind):
    tokenizer = make_encoder_tokenizer(kind, WORDS)
    template = text_template(tokenizer, TEMPLATES["plain"])
    expected = tokenizer(fill(TEMPLATES["plain"], "amber", "birch"))
    assert spliced(template, tokenizer, "amber", "birch") == expected["input_ids"]
    assert (template.token_types is None) == ("token_type_ids" not in expected)
    if template.token_types is not None:
        assert set(template.token_types) == set(expected["token_type_ids"])


def test_a_space_belongs_to_the_first_word_where_the_tokenizer_says_so():
    leads = {kind: text_template(make_tokenizer(kind, WORDS), TEMPLATES["plain"]).document_lead for kind in DECODERS}
    assert leads == {"qwen3": " ", "llama": "", "gemma": " "}


def test_the_end_of_a_text_merges_with_the_line_break_after_it():
    tokenizer = make_tokenizer("qwen3", WORDS)
    merged = tokenizer.convert_tokens_to_ids("?Ċ")
    _, query, middle, *_ = text_template(tokenizer, QWEN).pieces(*tokenise([" amber?", " birch"], tokenizer))
    assert merged in [*query, *middle]
    assert tokenizer.convert_tokens_to_ids("?") not in query


def test_without_a_template_a_decoder_gets_the_pair_of_its_tokenizer():
    for kind in DECODERS:
        tokenizer = make_tokenizer(kind, WORDS)
        template = open_template(tokenizer, "")
        assert spliced(template, tokenizer, "amber?", "birch.") == tokenizer("amber?", "birch.")["input_ids"]


def test_passages_of_a_long_document_have_the_template_each():
    tokenizer = make_tokenizer("qwen3", WORDS)
    text = "<Query>: {query}\n<Document>: {document}\nRelevant:"
    template = text_template(tokenizer, text)
    store = make_store(["d"], [" ".join(WORDS * 5)], Tokenisation(tokenizer, 800, template.document_lead))
    builder = PassageBuilder.build({"q": "what is amber?"}, store, tokenizer, template, 130)
    packed = builder([("q", "d")])
    passages = [tokenizer.decode(ids) for ids in packed.input_ids.split(packed.lengths())]
    assert len(passages) > 1
    for passage in passages:
        assert passage.startswith("<Query>: what is amber?\n<Document>: ")
        assert passage.endswith("\nRelevant:")
    assert max(packed.lengths()) <= 130
    joined = "".join(
        p.removeprefix("<Query>: what is amber?\n<Document>:").removesuffix("\nRelevant:") for p in passages
    )
    assert joined == " " + " ".join(WORDS * 5)


def test_the_space_is_part_of_a_stored_document_and_of_the_stores_name(tmp_path):
    tokenizer = make_tokenizer("qwen3", WORDS)

    def stored(**lead):
        return open_token_store(tmp_path, ["d"], lambda ids: ["amber"], Tokenisation(tokenizer, 800, **lead), "print")[
            "d"
        ].tolist()

    assert stored() == stored(lead="") == tokenizer("amber")["input_ids"]
    assert len(list(tmp_path.glob("*/"))) == 1
    assert stored(lead=" ") == tokenizer(" amber")["input_ids"]
    assert len(list(tmp_path.glob("*/"))) == 2


@pytest.mark.parametrize("text", ["{query}", "{query} {document} {document}", "nothing", "{document} {query}"])
def test_a_template_without_its_placeholders_is_an_error(text):
    with pytest.raises(UserError, match=r"expected \{query\} and \{document\} once each, in this order$"):
        check_text_template(text)


def test_a_template_that_merges_with_the_text_is_an_error():
    tokenizer = make_tokenizer("qwen3", [*WORDS, "xamber", "xWhat"])
    with pytest.raises(UserError, match=r"put a space before \{query\} and \{document\}"):
        text_template(tokenizer, "x{query} {document}")


def test_a_template_that_fills_the_input_is_an_error():
    tokenizer = make_tokenizer("qwen3", WORDS)
    template = text_template(tokenizer, QWEN)
    store = make_store(["d"], ["amber"], Tokenisation(tokenizer, 800, template.document_lead))
    with pytest.raises(UserError, match="leave no tokens for a query and a document in the encoder's 100"):
        PassageBuilder.build({"q": "amber"}, store, tokenizer, template, 100)


def test_a_pair_without_any_token_is_an_error():
    tokenizer = make_tokenizer("qwen3", WORDS)
    store = make_store(["d"], [""], Tokenisation(tokenizer, 800))
    builder = PassageBuilder.build({"q": ""}, store, tokenizer, open_template(tokenizer, ""), 100)
    with pytest.raises(UserError, match="query q, document d: both are empty"):
        builder([("q", "d")])


PAIR_WORDS = ["the", "cat", "sat", "on", "a", "mat", "boundary", "layer", "wing"]
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
    assert_splices(make_encoder_tokenizer(kind, PAIR_WORDS))


def test_tokenizer_that_joins_otherwise_is_an_error() -> None:
    from tokenizers import processors

    tokenizer = make_encoder_tokenizer("bert", PAIR_WORDS)
    special = [("[CLS]", tokenizer.cls_token_id), ("[SEP]", tokenizer.sep_token_id)]
    for pair in ("[CLS]:0 $B:0 [SEP]:0 $A:1", "$A:0 $B:1 [SEP]:1 [CLS]:0"):
        tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair=pair, special_tokens=special
        )
        with pytest.raises(UserError, match=r"joins two texts as .* use another encoder"):
            pair_template(tokenizer)
