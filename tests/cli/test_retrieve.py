"""`rerank retrieve`: the run, the judgments and the folds."""

from rerank.cli.main import main
from rerank.data.trec import read_qrels, read_run


def test_retrieve_writes_run_judgments_and_folds_once(here, capsys):
    run = here / "runs" / "towns" / "bm25.run"
    before = run.stat().st_mtime_ns
    main(["retrieve", "--collection", "towns"])
    assert capsys.readouterr().out.strip() == "runs/towns/bm25.run"
    assert run.stat().st_mtime_ns == before
    found, qrels = read_run(run), read_qrels(here / "runs" / "towns" / "qrels.txt")
    assert {q: set(documents) for q, documents in found.items()} == {q: set(judged) for q, judged in qrels.items()}
    main(["retrieve", "--collection", "towns", "--first-stage.k1", "1.2"])
    assert (here / "runs" / "towns" / "bm25-k1=1.2.run").exists()
