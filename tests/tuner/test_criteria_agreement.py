"""Agreement with val_map, on rows whose ranks are known."""

import math

import pytest

from tuner.criteria import LABEL_FREE_CRITERIA
from tuner.criteria_agreement import measure_agreement, read_criteria


def rows(**columns):
    count = len(columns["val_map"])
    filled = {name: columns.get(name, [1.0] * count) for name in ("val_map", *LABEL_FREE_CRITERIA)}
    return [{name: values[i] for name, values in filled.items()} for i in range(count)]


def test_same_order_opposite_order_and_no_order():
    agreements = measure_agreement(
        rows(val_map=[0.1, 0.2, 0.4], pair_score=[1.0, 2.0, 3.0], pair_recall=[3.0, 2.0, 1.0])
    )
    by_name = {item.criterion: item for item in agreements}
    assert agreements[0].criterion == "pair_score"
    assert by_name["pair_score"].spearman == pytest.approx(1.0)
    assert by_name["pair_score"].regret == 0.0
    assert by_name["pair_recall"].spearman == pytest.approx(-1.0)
    assert by_name["pair_recall"].regret == pytest.approx(0.3)
    assert by_name["pair_recall"].chosen_val_map == 0.1
    assert math.isnan(by_name["neighbour_map"].spearman)


def test_too_few_trials():
    with pytest.raises(ValueError, match=r"at least 3 trials with val_map. Received: 2 trials."):
        measure_agreement(rows(val_map=[0.1, 0.2]))


def test_reads_completed_trials(tmp_path):
    header = ",".join(["trial", "status", "val_map", *LABEL_FREE_CRITERIA])
    (tmp_path / "trials.csv").write_text(f"{header}\n0,completed,1,2,3,4,5,6\n1,failed,,,,,,\n")
    assert read_criteria(tmp_path) == [
        dict(zip(("val_map", *LABEL_FREE_CRITERIA), (1.0, 2.0, 3.0, 4.0, 5.0, 6.0), strict=True))
    ]


def test_search_without_labels_is_refused(tmp_path):
    file = tmp_path / "trials.csv"
    file.write_text(f"trial,status,{','.join(LABEL_FREE_CRITERIA)}\n0,completed,2,3,4,5,6\n")
    with pytest.raises(ValueError, match=r"trials.csv must have the columns .* Received: no val_map."):
        read_criteria(file)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"must be a search's folder or its trials.csv. Received: .*none"):
        read_criteria(tmp_path / "none.csv")
