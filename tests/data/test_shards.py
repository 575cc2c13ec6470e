"""Laws of shards: a partition, at most k classes, even or uneven as asked, the same for the same key."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from blindsight.data.shards import _proportions, by_column, dirichlet, iid, pathological
from blindsight.errors import InvalidInput
from blindsight.keys import reproducible, root

KEY = reproducible(7)


@st.composite
def labelled(draw):
    """Examples that know their own number, with labels of a few classes, as numbers or as text."""
    labels = np.array(draw(st.lists(st.integers(0, 6), min_size=1, max_size=60)))
    names = draw(st.sampled_from([labels, labels.astype(np.dtypes.StringDType()), labels.astype(np.int8)]))
    return {"x": np.arange(len(labels)), "y": names}


def assert_partition(columns, population, clients):
    assert population.size == clients
    order = population.columns["x"]
    assert sorted(order.tolist()) == list(range(len(columns["x"])))  # every example exactly once
    assert (population.columns["y"] == columns["y"][order]).all()  # and whole
    for client in population:
        assert client["x"].tolist() == sorted(client["x"].tolist())


@given(labelled(), st.integers(1, 80))
def test_iid_is_a_partition_into_equal_parts(columns, clients):
    population = iid(columns, clients, key=KEY)
    assert_partition(columns, population, clients)
    assert population.sizes.max() - population.sizes.min() <= 1


@given(labelled(), st.integers(1, 30), st.floats(1e-9, 1e9))
def test_dirichlet_is_a_partition(columns, clients, alpha):
    assert_partition(columns, dirichlet(columns, "y", clients, alpha, key=KEY), clients)


@given(labelled(), st.integers(1, 30), st.data())
def test_pathological_is_a_partition_into_at_most_k_classes_each(columns, clients, data):
    classes = len(set(columns["y"].tolist()))
    k = data.draw(st.integers(1, classes))
    if clients * k < classes:
        with pytest.raises(InvalidInput, match="cannot hold all"):
            pathological(columns, "y", clients, k, key=KEY)
        return
    population = pathological(columns, "y", clients, k, key=KEY)
    assert_partition(columns, population, clients)
    assert max(len(set(client["y"].tolist())) for client in population) <= k


def ten_classes(each=1000):
    labels = np.repeat(np.arange(10), each)
    return {"x": np.arange(len(labels)), "y": labels}


def table_of(population):
    """How many examples of each class each client has."""
    return np.array([np.bincount(client["y"], minlength=10) for client in population])


@pytest.mark.parametrize("k", [1, 3, 4, 10])
def test_pathological_gives_exactly_k_classes_and_shares_each_evenly(k):
    table = table_of(pathological(ten_classes(), "y", 40, k, key=KEY))
    assert ((table > 0).sum(axis=1) == k).all()
    for of_class in table.T:
        shares = of_class[of_class > 0]
        assert len(shares) == 4 * k
        assert shares.max() - shares.min() <= 1


def test_pathological_does_not_pair_the_same_classes_always():
    table = table_of(pathological(ten_classes(), "y", 200, 2, key=KEY)) > 0
    assert len({tuple(np.flatnonzero(client)) for client in table}) > 30  # of 45 pairs


def test_iid_spreads_classes_as_chance_does():
    table = table_of(iid(ten_classes(), 20, key=KEY))
    distance = np.sum((table - 50) ** 2 / 50)
    assert 0.001 < stats.chi2(19 * 9).cdf(distance) < 0.999


def test_dirichlet_with_a_huge_alpha_is_even():
    table = table_of(dirichlet(ten_classes(), "y", 30, 1e12, key=KEY))
    assert abs(table - 1000 / 30).max() <= 1


@pytest.mark.parametrize("alpha", [1e-9, 1e-320])
def test_dirichlet_with_a_tiny_alpha_gives_a_class_to_one_client(alpha):
    table = table_of(dirichlet(ten_classes(), "y", 30, alpha, key=KEY))
    assert (table.max(axis=0) == 1000).all()


@pytest.mark.parametrize("alpha", [0.05, 1.0, 5.0])
def test_proportions_follow_the_dirichlet_distribution(alpha):
    """Its marginals are Beta(alpha, (n - 1) alpha); half and twice the alpha must be noticed."""
    generator = np.random.default_rng(1)
    drawn = np.array([_proportions(generator, alpha, 4)[0] for _ in range(2000)])
    assert stats.kstest(drawn, stats.beta(alpha, 3 * alpha).cdf).pvalue > 1e-3
    for other in (alpha / 2, alpha * 2):
        assert stats.kstest(drawn, stats.beta(other, 3 * other).cdf).pvalue < 1e-6


SHARDS = {
    "iid": lambda columns, key: iid(columns, 9, key=key),
    "dirichlet": lambda columns, key: dirichlet(columns, "y", 9, 1.0, key=key),
    "pathological": lambda columns, key: pathological(columns, "y", 9, 2, key=key),
}


@pytest.mark.parametrize("kind", SHARDS)
def test_the_key_decides(kind):
    shards = SHARDS[kind]
    columns = ten_classes(10)
    first, again = (shards(columns, reproducible(1)).columns["x"].tolist() for _ in range(2))
    assert first == again
    assert first != shards(columns, reproducible(2)).columns["x"].tolist()
    assert shards(columns, root()).columns["x"].tolist() != shards(columns, root()).columns["x"].tolist()


@pytest.mark.slow
def test_a_million_clients_are_split_in_every_way():
    labels = np.arange(1_000_000) % 10
    columns = {"x": np.arange(len(labels)), "y": labels}
    assert iid(columns, 1_000_000, key=KEY).size == 1_000_000
    assert dirichlet(columns, "y", 1_000_000, 0.1, key=KEY).size == 1_000_000
    assert pathological(columns, "y", 500_000, 2, key=KEY).sizes.max() == 2


@given(labelled())
def test_by_column_is_grouping_in_order_of_first_appearance(columns):
    population = by_column(columns, "y")
    seen = list(dict.fromkeys(columns["y"].tolist()))
    assert population.ids.tolist() == [str(value) for value in seen]
    assert [client["x"].tolist() for client in population] == [
        np.flatnonzero(columns["y"] == value).tolist() for value in seen
    ]
    assert list(population.columns) == ["x"]


COLUMNS = {"x": np.arange(4), "y": np.array([0, 1, 0, 1]), "z": np.zeros((4, 2))}
MISTAKES = {
    "no columns": (lambda: iid({}, 2, key=KEY), "there are none"),
    "no examples": (lambda: iid({"x": []}, 2, key=KEY), "at least one:"),
    "unequal columns": (lambda: iid({"x": [1], "y": [1, 2]}, 2, key=KEY), "'x' has 1, 'y' has 2"),
    "a single value": (lambda: iid({"x": 3}, 2, key=KEY), "'x' has 0"),
    "no clients": (lambda: iid(COLUMNS, 0, key=KEY), "at least one client, got 0"),
    "no alpha": (lambda: dirichlet(COLUMNS, "y", 2, 0.0, key=KEY), "positive and finite, got 0.0"),
    "alpha not a number": (lambda: dirichlet(COLUMNS, "y", 2, float("nan"), key=KEY), "positive and finite, got nan"),
    "endless alpha": (lambda: dirichlet(COLUMNS, "y", 2, float("inf"), key=KEY), "positive and finite, got inf"),
    "unknown label": (lambda: dirichlet(COLUMNS, "yy", 2, 1.0, key=KEY), "no column 'yy': the nearest .* is 'y'"),
    "a label of two": (lambda: dirichlet(COLUMNS, "z", 2, 1.0, key=KEY), "'z' holds float64"),
    "too many classes": (lambda: pathological(COLUMNS, "y", 2, 3, key=KEY), "between 1 and the 2 classes .*, got 3"),
    "no class": (lambda: pathological(COLUMNS, "y", 2, 0, key=KEY), "got 0"),
    "ids of fractions": (lambda: by_column({"x": [0.5]}, "x"), "whole numbers or text"),
    "nothing but ids": (lambda: by_column({"x": [1]}, "x"), "no column besides 'x'"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_refused(mistake):
    divide, words = MISTAKES[mistake]
    with pytest.raises(InvalidInput, match=words):
        divide()
