from rerank.utils.processes import FEW, ordered_map


def test_results_come_in_order_whether_computed_here_or_in_processes():
    for count in (0, FEW - 1, FEW, 40):
        assert list(ordered_map(pow, range(count), 2)) == [number**2 for number in range(count)]
