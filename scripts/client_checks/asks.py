"""What each client is asked: runs in the client's own virtual environment, without rerank.

A function for each client takes the address of a server, a query and documents, and yields what the client was asked
as, and the answer: the [index, score] of each document, in the order of the client.
"""

import importlib.metadata
import json
import sys
from collections.abc import Iterator
from typing import Any

KEY = "none"
Answers = Iterator[tuple[str, list[Any]]]


def cohere(address: str, query: str, documents: list[str]) -> Answers:
    import cohere

    for name, client in (("v1", cohere.Client), ("v2", cohere.ClientV2)):
        answer = client(api_key=KEY, base_url=address).rerank(model="any", query=query, documents=documents)
        yield name, [[found.index, found.relevance_score] for found in answer.results]


def litellm(address: str, query: str, documents: list[str]) -> Answers:
    import litellm

    for name in ("cohere", "jina_ai", "hosted_vllm", "together_ai"):
        place = {"api_base": f"{address}/v1" if name == "together_ai" else address, "api_key": KEY}
        answer = litellm.rerank(model=f"{name}/any", query=query, documents=documents, **place)
        yield name, [[found["index"], found["relevance_score"]] for found in answer.results]


def langchain(address: str, query: str, documents: list[str]) -> Answers:
    from langchain_cohere import CohereRerank
    from langchain_community.document_compressors import jina_rerank
    from langchain_core.documents import Document

    jina_rerank.JINA_API_URL = f"{address}/v1/rerank"  # it has no parameter for it
    asked, count = {"model": "any"}, len(documents)
    compressors = {
        "CohereRerank": CohereRerank(cohere_api_key=KEY, base_url=address, top_n=count, **asked),
        "JinaRerank": jina_rerank.JinaRerank(jina_api_key=KEY, top_n=count, **asked),
    }
    for name, compressor in compressors.items():
        texts = [Document(page_content=text, metadata={"place": place}) for place, text in enumerate(documents)]
        answer = compressor.compress_documents(texts, query)
        yield name, [[found.metadata["place"], found.metadata["relevance_score"]] for found in answer]


def llama_index(address: str, query: str, documents: list[str]) -> Answers:
    from llama_index.core.schema import NodeWithScore, TextNode
    from llama_index.postprocessor.cohere_rerank import CohereRerank
    from llama_index.postprocessor.jinaai_rerank import JinaRerank
    from llama_index.postprocessor.tei_rerank import TextEmbeddingInference

    count = len(documents)
    for postprocessor in (
        CohereRerank(api_key=KEY, base_url=address, model="any", top_n=count),
        JinaRerank(api_key=KEY, base_url=f"{address}/v1", top_n=count),
        TextEmbeddingInference(base_url=address, top_n=count),
    ):
        nodes = [NodeWithScore(node=TextNode(text=text, id_=str(place))) for place, text in enumerate(documents)]
        answer = postprocessor.postprocess_nodes(nodes, query_str=query)
        yield type(postprocessor).__name__, [[int(found.node.node_id), found.score] for found in answer]


def haystack(address: str, query: str, documents: list[str]) -> Answers:
    from haystack import Document
    from haystack.utils import Secret
    from haystack_integrations.components.rankers.cohere import CohereRanker
    from haystack_integrations.components.rankers.jina import JinaRanker
    from haystack_integrations.components.rankers.vllm import VLLMRanker

    key = Secret.from_token(KEY)
    for ranker in (
        CohereRanker(model="any", api_key=key, api_base_url=address),
        JinaRanker(model="any", api_key=key, base_url=f"{address}/v1/rerank"),
        VLLMRanker(model="any", api_key=key, api_base_url=f"{address}/v1"),
    ):
        texts = [Document(id=str(place), content=text) for place, text in enumerate(documents)]
        answer = ranker.run(query=query, documents=texts, top_k=len(documents))
        yield type(ranker).__name__, [[int(found.id), found.score] for found in answer["documents"]]


def tei(address: str, query: str, documents: list[str]) -> Answers:
    from tei_client import HttpClient

    yield "/rerank", [[found.index, found.score] for found in HttpClient(address).rerank(query, documents).ranks]


def rerankers(address: str, query: str, documents: list[str]) -> Answers:
    from rerankers import Reranker

    for name in ("cohere", "jina", "text-embeddings-inference"):
        url = address + ("/rerank" if name == "text-embeddings-inference" else "/v1/rerank")
        model = Reranker("any", model_type=name, api_key=KEY, url=url, verbose=0)
        answer = model.rank(query, documents, doc_ids=list(range(len(documents))))
        yield name, [[found.document.doc_id, found.score] for found in answer.results]


if __name__ == "__main__":
    name, package = sys.argv[1:]
    answers = dict(globals()[name](**json.load(sys.stdin)))
    print(json.dumps([importlib.metadata.version(package), answers]))
