"""The search page and its JSON endpoint, in an application of their own."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.testclient import TestClient

from rerank.data.types import Found, Hit, Marked
from rerank.serving.app import make_app
from rerank.serving.metrics import Metrics
from rerank.serving.search_page import LARGEST_BODY, MOST, MOST_WAITING, TOP, Searches
from rerank.utils.errors import UserError
from tests.support.parsed_html import Page
from tests.support.patience import SECONDS, until
from tests.support.servers import serving

HOSTILE = "<script>alert(1)</script> & \"quotes\" 'single' {{ 7 * 7 }}"
WHOLE = Marked("On <i>\n\nthe lift of a wing and its drag.", ((22, 26),))
HITS = [
    Hit(
        "d1",
        1,
        8.5,
        Marked("On wings", ((3, 8),)),
        Marked("… the lift of a wing …", ((16, 20),)),
        {"a": (12, 10.25)},
        WHOLE,
        (8, 26),
        (("wing", "drag"),),
    ),
    Hit(HOSTILE, 2, -1.25, Marked(""), Marked(HOSTILE, ((0, 8),)), {}, Marked(HOSTILE)),
]
JSON = "application/json"
NOTE = "No document <is> near."


def find(query, top, *, explain):
    """A search that knows some queries."""
    if query == "fails":
        raise UserError("index gone: not a folder with a Lucene index")
    if query == "breaks":
        raise KeyError(f"{query} is the query")
    return Found([], 0) if query == "nothing" else Found(HITS[:top], 1234, NOTE if query == "xqzv" else "")


def app(search=find, collection="towns <i>", note=lambda: ""):
    return make_app("the model", metrics := Metrics(), searches=Searches(search, collection, metrics, note))


def ask_page(query, application=None, **more):
    return TestClient(application or app()).get("/", params={"query": query, **more})


def ask_json(query, application=None, **more):
    return TestClient(application or app()).post("/search", json={"query": query, **more})


def test_the_form_loads_nothing_and_runs_nothing():
    answer = TestClient(app()).get("/")
    page = Page(answer.text)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert page.of("h1") == ["towns <i>"]
    tags = [tag for tag, _ in page.tags]
    assert tags.count("form") == 1
    assert not {"script", "img", "iframe", "object", "li"} & set(tags)
    assert [attributes["href"] for tag, attributes in page.tags if tag == "link"] == ["data:,"]
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert "http" not in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_the_hits_are_on_the_page_and_nothing_of_them_is_html():
    answer = ask_page(f"{HOSTILE} ä")
    page = Page(answer.text)
    assert answer.status_code == 200
    assert page.of("h2") == ["On ", HOSTILE]
    assert page.of("mark") == ["wings", "wing", "wing", "<script>"]
    assert page.of("summary") == ["Stages", "Whole document"]  # the snippet of the other hit is its whole text
    assert "On <i>\n\n" in page.of("p")
    assert "the lift of a " in page.of("span")  # the passage
    assert page.text.count(HOSTILE) == 2 + 1  # the id, as there is no title, the snippet, and the title of the page
    assert page.of("th") == ["Stage", "Rank", "Score", "a"]
    assert page.of("td") == ["12", "10.2500"]
    assert not any("open" in attributes for tag, attributes in page.tags if tag == "details")
    assert "Results 1 to 2 of 1,234" in page.of("p")
    assert [tag for tag, _ in page.tags].count("script") == 0
    (field,) = [attributes for tag, attributes in page.tags if tag == "input"]
    assert field["value"] == f"{HOSTILE} ä"
    assert "d1 · score 8.5000 · matched: wing → drag" in answer.text
    assert answer.text.partition("<main")[2].count("d1") == 1


def test_the_endpoint_gives_the_hits_with_places_of_marks():
    answer = ask_json("wing")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    hit = {
        "doc_id": "d1",
        "rank": 1,
        "score": 8.5,
        "title": {"text": "On wings", "marks": [[3, 8]]},
        "snippet": {"text": "… the lift of a wing …", "marks": [[16, 20]]},
    }
    assert answer.json()["hits"][0] == hit
    assert (len(answer.json()["hits"]), answer.json()["answered_by"]) == (2, "a")
    explained = ask_json("wing", top=1, explain=True).json()["hits"]
    assert explained == [hit | {"stages": {"a": {"rank": 12, "score": 10.25}}, "matches": {"wing": "drag"}}]


def test_a_note_says_that_hits_are_probably_no_answers():
    assert Page(ask_page("xqzv").text).of("p")[0] == NOTE == ask_json("xqzv").json()["note"]
    assert 'role="note"' not in ask_page("wing").text
    assert ask_json("wing").json().keys() == {"hits", "total", "answered_by"}


def test_nothing_found_is_a_line_or_an_empty_list():
    assert "No document has a word of the query" in ask_page("nothing").text
    assert ask_json("nothing").json() == {"hits": [], "total": 0}
    assert ask_page("nothing").status_code == ask_json("nothing").status_code == 200


REFUSED = {
    (JSON, 422): [
        *(b'{"query": " "}', b'{"query": 1}', b"{}", b'{"query": "wing", "explain": 2}'),
        *(b'{"query": "wing", "top": %s}' % top for top in (b"0", b"1001", b"1.5")),
    ],
    (JSON, 400): [
        *(b"", b'["wing"]', b'{"query": "wing"', b'{"query": "\\ud800"}', b'{"query": "\xff"}', b"[" * 10_000)
    ],
    (JSON, 413): [b'{"query": "' + b"x" * LARGEST_BODY],
    ("text/plain", 415): [b'{"query": "wing"}'],
}
"""Type and status -> bodies."""


@pytest.mark.parametrize(("content_type", "status"), REFUSED)
def test_bad_requests_are_refused_and_the_search_is_not_asked(content_type, status, caplog):
    for body in REFUSED[content_type, status]:
        answer = TestClient(app(search=None)).post("/search", content=body, headers={"Content-Type": content_type})
        assert answer.status_code == status, body[:40]
        assert answer.json()["error"]
        assert "--max-body-mib" not in answer.text  # it does not bound these requests
    assert not caplog.text


def test_addresses_without_a_search_are_refused_on_the_page():
    for query in ("", "%20%0A", "wing&from=0", "wing&from=x", "wing&from=10000"):
        answer = TestClient(app(search=None)).get(f"/?query={query}")
        assert answer.status_code == 422
        assert 'class="problem"' in answer.text


def test_further_results_have_an_address():
    many = [HITS[0]._replace(doc_id=f"d{rank}", rank=rank) for rank in range(1, 25)]
    application, query = app(lambda query, top, explain: Found(many[:top], 24)), "wing & ä"
    address, shown = "/?query=wing+%26+%C3%A4", []
    while address:
        page = Page(TestClient(application).get(address).text)
        shown += [text.split(" · ")[0] for kind, text in page.texts if kind == "p" and " · " in text]
        links = {attributes["rel"]: attributes["href"] for _, attributes in page.tags if "rel" in attributes}
        (field,) = [attributes for tag, attributes in page.tags if tag == "input"]
        (listed,) = [attributes for tag, attributes in page.tags if tag == "ol"]
        assert field["value"] == query
        assert ("prev" in links) == (listed["start"] != "1")
        address = links.get("next")
    assert shown == [hit.doc_id for hit in many]
    assert "There are no further documents" in ask_page(query, application, **{"from": 31}).text
    endless = app(lambda query, top, explain: Found([HITS[0]] * top, top))
    assert 'rel="next"' in ask_page(query, endless, **{"from": MOST - TOP}).text
    assert 'rel="next"' not in ask_page(query, endless, **{"from": MOST - TOP + 1}).text  # the next one is refused


def test_openapi_describes_a_search():
    assert "/search" in TestClient(app()).get("/openapi.json").json()["paths"]


def test_a_search_that_fails_is_a_line_and_no_query_is_in_the_log(caplog):
    for query, logged in {"fails": "index gone", "breaks": "KeyError"}.items():
        for answer in (ask_page(query), ask_json(query)):
            assert answer.status_code == 500
            assert "the search failed; the log of the server says why" in answer.text
        assert logged in caplog.text
    assert "breaks is the query" not in caplog.text


def test_searches_run_one_after_the_other_and_too_many_are_refused():
    running, most, begin, threads = [0], [0], threading.Event(), set()

    def slow(query, top, *, explain):
        running[0] += 1
        most[0] = max(most[0], running[0])
        threads.add(threading.get_ident())
        begin.wait(30)
        running[0] -= 1
        return Found(HITS, 2)

    with serving(app(slow)) as server, ThreadPoolExecutor(MOST_WAITING + 3) as pool:
        asked = [pool.submit(server.ask, "/search", {"query": "wing"}) for _ in range(MOST_WAITING + 3)]
        until(lambda: sum(one.done() for one in asked) == 3)
        assert {(one.result().status, one.result().headers["retry-after"]) for one in asked if one.done()} == {
            (429, "1")
        }
        begin.set()
        assert sorted(one.result(SECONDS).status for one in asked) == [200] * MOST_WAITING + [429] * 3
        assert server.ask("/search", {"query": "wing"}).status == 200
    assert (most[0], len(threads)) == (1, 1)


def test_health_says_that_the_documents_are_older():
    for note in ("", "serving the documents that towns had at the start"):
        answer = TestClient(app(note=lambda said=note: said)).get("/health")
        assert (answer.status_code, answer.text) == (200, note)


KEYS = ("first key", "second")
FORM = "application/x-www-form-urlencoded"


def guarded(base_url="http://testserver"):
    metrics = Metrics()
    searches = Searches(find, "towns <i>", metrics)
    application = make_app("the model", metrics, searches=searches, keys=KEYS)
    return TestClient(application, base_url=base_url, follow_redirects=False)


def test_the_page_asks_for_the_key_once():
    client = guarded()
    asked = client.get("/", params={"query": 'wing & "ä"', "from": 2})
    assert asked.status_code == 401
    page = Page(asked.text)
    assert page.of("li") == []
    fields = {attributes["name"]: attributes for tag, attributes in page.tags if tag == "input"}
    assert (fields["key"]["type"], fields.keys()) == ("password", {"to", "key"})
    wrong = client.post("/key", data={"key": "third", "to": fields["to"]["value"]})
    assert (wrong.status_code, "set-cookie" in wrong.headers) == (401, False)
    assert Page(wrong.text).of("p") == ["The server does not know this key."]
    given = client.post("/key", data={"key": " second ", "to": fields["to"]["value"]})
    cookie = given.headers["set-cookie"]
    assert given.status_code == 303
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Secure" not in cookie
    assert "second" not in cookie
    shown = client.get(given.headers["location"])
    assert shown.status_code == 200
    (query,) = [attributes["value"] for tag, attributes in Page(shown.text).tags if tag == "input"]
    assert query == 'wing & "ä"'
    assert client.post("/search", json={"query": "wing"}).status_code == 401  # the cookie opens the page only
    assert client.get("/metrics").status_code == 401
    assert client.post("/search", json={"query": "wing"}, headers={"X-API-Key": "first key"}).status_code == 200


def test_a_cookie_that_no_key_has_opens_nothing():
    for value in ("", "second", "0" * 64):
        client = guarded()
        client.cookies.set("rerank-key", value)
        assert client.get("/").status_code == 401
    given = guarded("https://testserver").post("/key", data={"key": "second"})
    assert given.headers["location"] == "/"
    assert "Secure" in given.headers["set-cookie"]


def test_the_form_of_the_key_leads_to_this_server_only():
    for to in ("//evil.example", "https://evil.example", "\r\nSet-Cookie: a=b", "query=%0d%0a"):
        given = guarded().post("/key", data={"key": "second", "to": to})
        assert given.headers["location"].startswith("/?")
        assert list(given.headers).count("set-cookie") == 1
    for body, kind, status in (
        (b"key=" + b"x" * 2**18, FORM, 413),
        (b'{"key": "second"}', JSON, 415),
        (b"&".join([b"a=b"] * 20), FORM, 400),
        (b"\xff", FORM, 401),
    ):
        answer = guarded().post("/key", content=body, headers={"Content-Type": kind})
        assert (answer.status_code, "set-cookie" in answer.headers) == (status, False)
        assert 'class="problem"' in answer.text
