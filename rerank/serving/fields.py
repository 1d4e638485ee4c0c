"""The other fields that clients send: fields without effect, and fields that are refused.

Ignoring a field that the server does not support could silently give a wrong answer. So it is refused by name, unless
its value changes neither order nor scores nor texts.
"""

from collections.abc import Collection
from typing import NamedTuple

from rerank.serving.requests import Body, RefusalError
from rerank.utils.errors import nearest


class Refused(NamedTuple):
    """An unsupported field: `harmless` values, which change nothing, and the advice for others."""

    harmless: tuple[object, ...]
    instead: str


WITHOUT_EFFECT = frozenset(
    ("model", "model_name", "model_uid", "user", "priority", "request_id", "client_name", "timeout", "return_len")
)
"""Fields whose value changes no answer: there is one model, and requests are answered first come, first served."""

CUT = "documents are truncated at their end: take max_tokens_per_doc, or shorter texts"
WHOLE = "a document is read whole, up to max_tokens_per_doc, in consecutive passages"
PROMPT = "the prompt is the checkpoint's template"
ACTIVATION = "take use_activation"
REFUSED = {
    # Cohere 1, Together
    "rank_fields": Refused(([], ["text"]), "only the key text of a document is ranked: put the text there"),
    "max_chunks_per_doc": Refused((), WHOLE),
    # TEI
    "truncation_direction": Refused(("Right", "right"), CUT),
    # vLLM
    "truncate_prompt_tokens": Refused((-1,), CUT),
    "truncation_side": Refused(("right",), CUT),
    "max_tokens_per_query": Refused((0,), "a query is cut at half of the model's input"),
    "instruction": Refused(("",), PROMPT),
    "chat_template": Refused(("",), PROMPT),
    "chat_template_kwargs": Refused(({},), PROMPT),
    "mm_processor_kwargs": Refused(({},), "only texts are ranked"),
    "add_special_tokens": Refused((True,), "the model reads a pair with its special tokens"),
    "normalize": Refused((), ACTIVATION),
    "softmax": Refused((), ACTIVATION),
    # Jina
    "max_query_length": Refused((), "a query is cut at half of the model's input"),
    "return_embeddings": Refused((False,), "a cross-encoder has no vectors of texts"),
    # SiliconFlow, Xinference
    "overlap_tokens": Refused((0,), WHOLE),
    "kwargs": Refused(("{}", {}), "the options of Xinference's models have no counterpart"),
}
"""The refused fields, grouped by the servers that have them."""


def check_fields(body: Body, known: Collection[str]) -> Body:
    """The fields of a request that are in `known`; raises RefusalError for others that would change the answer.

    Unknown fields are refused too, as they may be misspelt, unless they are null.
    """
    for name, value in body.items():
        if name in known or name in WITHOUT_EFFECT or value is None:
            continue
        if name in REFUSED:
            if value not in REFUSED[name].harmless:
                raise RefusalError(422, f"{name}: is not computed here; {REFUSED[name].instead}")
        else:
            raise RefusalError(422, f"{name[:50]}: unknown field; {nearest(name[:50], known)}")
    return {name: value for name, value in body.items() if name in known}


def one_name(body: Body, names: dict[str, str]) -> Body:
    """The body with fields renamed by `names`; raises RefusalError if a field is given under two names."""
    found: Body = {}
    for name, value in body.items():
        target = names.get(name, name)
        if value is None and target in found:
            continue
        if found.get(target) is not None:
            others = [other for other in body if names.get(other, other) == target]
            raise RefusalError(422, f"{others[0]}, {others[1]}: two names of the same field; expected one of them")
        found[target] = value
    return found
