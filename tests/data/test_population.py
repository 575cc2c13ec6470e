"""Populations against a naive twin: a list of clients, each a dict of lists."""

import functools
import io
import json
import string
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from blindsight.data import faults
from blindsight.data.embedded import embedded
from blindsight.data.generated import GeneratedPopulation
from blindsight.data.population import Population, as_text, open_population, ranges
from blindsight.errors import BlindsightError, InvalidInput

TEXT = np.dtypes.StringDType()
odd_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)  # all but lone surrogates
field_names = st.text(string.ascii_letters + "/. é\\", min_size=1, max_size=8)


@st.composite
def twins(draw):
    """A population, and the same one as a list of dicts of lists."""
    sizes = draw(st.lists(st.integers(0, 4), min_size=1, max_size=8))
    names = draw(st.lists(field_names, min_size=2, max_size=2, unique=True))
    ids = draw(st.lists(odd_text, min_size=len(sizes), max_size=len(sizes), unique=True))
    naive = [
        {
            names[0]: draw(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=size, max_size=size)),
            names[1]: draw(st.lists(odd_text, min_size=size, max_size=size)),
        }
        for size in sizes
    ]
    columns = {
        names[0]: np.array([value for client in naive for value in client[names[0]]], np.int32),
        names[1]: np.array([value for client in naive for value in client[names[1]]], dtype=TEXT),
    }
    return Population(columns, sizes=sizes, ids=ids, name="twin", classes={names[0]: ("a", "b")}), naive


def listed(population):
    return [{field: column.tolist() for field, column in client.items()} for client in population]


def assert_same(one, other):
    assert listed(one) == listed(other)
    assert one.ids.tolist() == other.ids.tolist()
    assert (one.name, one.classes, one.synthetic, one.fields) == (
        other.name,
        other.classes,
        other.synthetic,
        other.fields,
    )


@given(twins())
def test_clients_are_those_of_the_naive_twin(twin):
    population, naive = twin
    assert listed(population) == naive
    assert population.size == len(population) == len(naive)
    assert repr(population).startswith("<Population 'twin': ")
    assert population.sizes.tolist() == [len(next(iter(client.values()))) for client in naive]
    assert population.n_examples == sum(population.sizes)
    for index, client in enumerate(population.ids.tolist()):
        assert population.index(client) == index
        assert listed([population[client], population[index]]) == [naive[index]] * 2


@given(twins(), st.data())
def test_examples_come_client_after_client_in_any_order(twin, data):
    population, naive = twin
    chosen = data.draw(st.lists(st.integers(-len(naive), len(naive) - 1), max_size=6))  # repeated and from the end, too
    examples = population.examples(np.array(chosen, np.int64))
    for field, column in examples.items():
        assert column.tolist() == [value for client in chosen for value in naive[client][field]]
    rows = population.rows(np.array(chosen, np.int64))
    assert all((population.columns[field][rows] == column).all() for field, column in examples.items())


@given(twins(), st.data())
def test_select_keeps_clients_whole_and_takes_indices_or_a_mask(twin, data):
    population, naive = twin
    chosen = data.draw(st.lists(st.integers(0, len(naive) - 1), min_size=1, unique=True))
    selected = population.select(chosen, name="some")
    assert listed(selected) == [naive[client] for client in chosen]
    assert selected.ids.tolist() == population.ids[chosen].tolist()
    mask = np.isin(np.arange(len(naive)), chosen)
    assert_same(population.select(mask), population.select(np.sort(chosen)))
    assert_same(population.select(int(chosen[0])), population.select([chosen[0]]))


@given(twins())
def test_replace_and_transform_keep_clients_and_forget_classes_of_lost_fields(twin):
    population, naive = twin
    number, text = population.columns
    replaced = population.replace({text: population.columns[text]})
    assert listed(replaced) == [{text: client[text]} for client in naive]
    assert population.classes
    assert replaced.classes == {}
    moved = population.transform(lambda _, columns: columns | {number: columns[number] + np.int32(1) - 1}, name="moved")
    assert (listed(moved), moved.name) == (naive, "moved")


@given(twins())
def test_a_saved_population_opens_as_it_was(tmp_path_factory, twin):
    population, _ = twin
    folder = population.save(tmp_path_factory.mktemp("saved") / "people")
    assert_same(open_population(folder), population)


def test_numbers_are_mapped_not_read(tmp_path):
    images = np.arange(3 * 28 * 28, dtype=np.uint8).reshape(3, 28, 28)
    population = Population({"image": images, "tags": [["a", ""], ["", "ü\0"], ["\n", "b"]]}, sizes=[1, 2], name="p")
    opened = open_population(population.save(tmp_path / "p"))
    assert isinstance(opened.columns["image"], np.memmap)
    assert opened.fields == {"image": (np.dtype("uint8"), (28, 28)), "tags": (TEXT, (2,))}
    assert opened.columns["tags"].tolist() == [["a", ""], ["", "ü\0"], ["\n", "b"]]
    assert_same(opened, population)


def test_a_population_may_have_no_examples_at_all(tmp_path):
    empty = Population({"x": np.zeros((0, 3)), "t": np.zeros(0, TEXT)}, sizes=[0, 0], name="silent")
    assert_same(open_population(empty.save(tmp_path / "p")), empty)
    assert empty.describe().without_examples == 2


class Recorder:
    """Draws that remember who was asked for: client i has i examples (i, 0), (i, 1), ..."""

    def __init__(self):
        self.asked = []

    def __call__(self, clients):
        self.asked.append(clients.tolist())
        counts = clients % 5
        return {"client": np.repeat(clients, counts), "x": ranges(np.zeros_like(clients), counts)}


def generated(clients=40):
    draw = Recorder()
    return draw, GeneratedPopulation(draw, sizes=np.arange(clients) % 5, name="drawn", synthetic=True)


def test_a_generated_population_draws_only_who_is_asked_for():
    draw, population = generated()
    chosen = population.select(np.arange(10, 20)).transform(lambda _, c: c | {"x": -c["x"]}, name="t").select([3, 1])
    assert draw.asked == []  # neither selecting nor changing draws anyone
    assert chosen.examples(np.array([1]))["client"].tolist() == [11]
    assert draw.asked == [[11]]
    assert isinstance(chosen, GeneratedPopulation)
    assert chosen.fields["x"] == (np.dtype(np.int64), ())
    assert draw.asked == [[11], [13]]  # one client shows what fields there are


def test_a_generated_population_equals_the_one_that_was_drawn():
    _, population = generated()
    drawn = Population(population.columns, sizes=population.sizes, name="drawn", synthetic=True)
    _, lazy = generated()
    assert_same(lazy, drawn)
    assert_same(lazy.select([7, 3]), drawn.select([7, 3]))
    assert_same(population, drawn)  # and keeps what was drawn


def test_a_change_sees_the_clients_it_changes():
    _, population = generated()
    marked = population.transform(lambda clients, c: c | {"first": np.full(len(c["x"]), clients[0])}, name="marked")
    assert set(marked[12]["first"].tolist()) == {12}
    assert set(marked.select([9, 12])["12"]["first"].tolist()) == {12}


def test_a_wrong_draw_is_noticed():
    wrong = GeneratedPopulation(lambda clients: {"x": np.zeros(1)}, sizes=[1, 1], name="wrong")
    with pytest.raises(InvalidInput, match="field 'x' of wrong has 1 examples"):
        _ = wrong.columns


@pytest.mark.slow
def test_a_million_clients_cost_no_object_each():
    sizes = np.arange(1_000_000) % 3
    tracemalloc.start()
    population = Population({"x": np.zeros(int(sizes.sum()), np.float32)}, sizes=sizes, name="many")
    some = population.select(np.arange(0, 1_000_000, 2))
    objects = sum(trace.count for trace in tracemalloc.take_snapshot().statistics("filename"))
    tracemalloc.stop()
    assert some.size == 500_000
    assert population.examples(np.arange(100_000))["x"].shape == (sizes[:100_000].sum(),)
    assert objects < 10_000


def test_ranges_are_those_of_python():
    starts, counts = np.array([4, 0, 9]), np.array([0, 3, 2])
    assert ranges(starts, counts).tolist() == [0, 1, 2, 9, 10]
    assert ranges(starts[:0], counts[:0]).tolist() == []


def test_text_keeps_final_nul_characters():
    assert as_text(["a\0", ""]).tolist() == ["a\0", ""]
    assert as_text(np.arange(2)).tolist() == ["0", "1"]


def test_the_description_says_what_is_there():
    population = Population({"x": np.zeros((4, 2)), "note": ["a", "b", "[c]", "d"]}, sizes=[1, 0, 3], name="[few]")
    description = population.describe()
    assert json.loads(json.dumps(description.to_dict())) == {
        "name": "[few]",
        "clients": 3,
        "examples": 4,
        "fields": {"x": "float64[2]", "note": "text"},
        "classes": {},
        "examples_per_client": {"least": 0, "quarter": 0.5, "median": 1, "three quarters": 2, "most": 3},
        "without_examples": 1,
        "synthetic": False,
        "simulation_only": True,
    }
    Console(width=100, file=(out := io.StringIO())).print(description)
    printed = out.getvalue()
    assert "[few]: 3 clients, 4 examples, real data" in printed
    assert "simulation_only" in printed


X = {"x": np.arange(3)}
MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "no clients": ({"columns": X, "sizes": []}, "at least one client"),
    "fractions of examples": ({"columns": X, "sizes": [1.5, 1.5]}, "whole numbers"),
    "fewer than none": ({"columns": X, "sizes": [4, -1]}, "whole numbers"),
    "too few examples": ({"columns": X, "sizes": [2, 2]}, "'x' of p has 3 examples, but its clients have 4"),
    "a single value": ({"columns": {"x": np.array(3)}, "sizes": [1]}, "'x' of p has 0 examples"),
    "objects": ({"columns": {"x": np.array([{}, None], object)}, "sizes": [2]}, "use numbers or text"),
    "dates": ({"columns": {"x": np.zeros(2, "M8[s]")}, "sizes": [2]}, "use numbers or text"),
    "too few ids": ({"columns": X, "sizes": [1, 2], "ids": ["a"]}, "2 clients but 1 ids"),
    "an id twice": ({"columns": X, "sizes": [1, 2], "ids": ["a", "a"]}, "same id"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_refused(mistake):
    arguments, words = MISTAKES[mistake]
    with pytest.raises(InvalidInput, match=words):
        Population(**arguments, name="p")


def test_a_selection_that_makes_no_sense_is_refused():
    population = Population(X, sizes=[1, 2], name="p")
    for clients in ([], [False, False], [2], [True], ["a"], 0.5):
        with pytest.raises(InvalidInput, match="of p"):
            population.select(clients)
    with pytest.raises(InvalidInput, match="there is no client 'b' in p"):
        population["b"]
    with pytest.raises(IndexError):
        population[2]


def test_what_is_no_saved_population_is_refused(tmp_path):
    population = Population({"x": np.arange(3), "t": ["a", "b", "c"]}, sizes=[1, 2], name="p")
    with pytest.raises(InvalidInput, match="not a saved population"):
        open_population(tmp_path / "absent")
    folder = population.save(tmp_path / "p")
    with pytest.raises(InvalidInput, match="exists already"):
        population.save(folder)
    (tmp_path / "file").touch()
    with pytest.raises(BlindsightError, match="choose another folder"):
        population.save(tmp_path / "file" / "p")


@pytest.mark.parametrize("file", ["population.json", "sizes.npy", "column-0.npy", "column-1.npy", "column-2.npy"])
@pytest.mark.parametrize("damage", ["cut", "lost", "emptied"])
def test_damage_is_refused_never_read(tmp_path, file, damage):
    folder = Population({"x": np.arange(3), "t": ["a", "b", "c"]}, sizes=[1, 2], name="p").save(tmp_path / "p")
    content = (folder / file).read_bytes()
    (folder / file).unlink()
    if damage != "lost":
        (folder / file).write_bytes(content[:-2] if damage == "cut" else b"")
    with pytest.raises(InvalidInput, match=r"damaged|not a saved population"):
        open_population(folder)


def test_texts_of_another_length_are_refused(tmp_path):
    folder = Population({"t": ["a", "b", "c"]}, sizes=[1, 2], name="p").save(tmp_path / "p")
    np.save(folder / "column-1.lengths.npy", np.array([1, 1, 2]))
    with pytest.raises(InvalidInput, match="its texts have 3 bytes instead of 4"):
        open_population(folder)


def test_a_later_format_asks_for_an_update(tmp_path):
    folder = Population(X, sizes=[3], name="p").save(tmp_path / "p")
    about = json.loads((folder / "population.json").read_text())
    (folder / "population.json").write_text(json.dumps(about | {"format": 2}))
    with pytest.raises(InvalidInput, match="newer Blindsight"):
        open_population(folder)


def test_a_fingerprint_tells_other_clients_other_examples_and_other_fields_apart():
    def one(x=(1, 2, 3), sizes=(2, 1), ids=("a", "b"), texts=("p", "q", "r"), field="x"):
        return Population({field: np.array(x), "t": np.array(texts, dtype=TEXT)}, sizes=list(sizes), ids=ids, name="n")

    others = [one(x=(1, 2, 4)), one(sizes=(1, 2)), one(ids=("a", "c")), one(texts=("p", "q", "s")), one(field="y")]
    others += [one(texts=("pq", "", "r")), one(x=(1.0, 2.0, 3.0))]
    found = [some.fingerprint for some in others]
    assert one().fingerprint == one().fingerprint
    assert len({one().fingerprint, *found}) == 1 + len(found)
    drawn = [embedded("digits").fingerprint, *(embedded("forum", clients=20, seed=s).fingerprint for s in (0, 0, 1))]
    assert drawn[1] == drawn[2] != drawn[3]


def drawn_with(*, odd: int | None = None, clients: int = 300, recipe: Any = None) -> GeneratedPopulation:
    """Clients who have their own numbers; `odd` has another one."""

    def draw(some: np.ndarray) -> dict[str, np.ndarray]:
        return {"x": np.where(some == odd, -1, some)}

    return GeneratedPopulation(draw, sizes=np.ones(clients, np.int64), name="drawn", recipe=recipe)


@pytest.mark.parametrize("odd", [0, 99, 100, 299])
def test_a_generated_population_is_known_by_every_client(odd):
    one = drawn_with()
    assert one.fingerprint == drawn_with().fingerprint
    assert one.fingerprint != drawn_with(odd=odd).fingerprint
    assert one.fingerprint == Population(one.columns, sizes=one.sizes, name="the same, drawn").fingerprint


def test_a_large_population_is_known_by_its_recipe_wherever_two_of_them_differ():
    """Without drawing more than a hundred of its clients; who is the same has the same fingerprint."""
    made = functools.partial(embedded, "forum", examples=(3, 4))
    forum = made(clients=300)
    others = [made(clients=300, seed=1), made(clients=301), forum.select(np.arange(1, 300))]
    others += [forum.select([*range(100), *range(200, 300)]), forum.select([*range(100), *range(199, 299)])]
    others += [faults.apply(forum, fault) for fault in ("case:0.01", "case:0.02", "truncation:0.01:by=example")]
    others += [faults.apply(forum, "case:0.01", seed=1)]
    found = [some.fingerprint for some in others]
    assert len({forum.fingerprint, *found}) == 1 + len(found)
    assert made(clients=400).select(np.arange(300)).fingerprint == forum.fingerprint
    assert forum.select(np.arange(250)).select(np.arange(200)).fingerprint == made(clients=200).fingerprint
    one, same = (drawn_with(recipe=["numbers", 7], odd=odd) for odd in (None, 299))  # the recipe is what is believed
    other, code = drawn_with(recipe=["numbers", 8]), drawn_with(recipe=["numbers", 7], odd=3)
    assert one.fingerprint == same.fingerprint not in (other.fingerprint, code.fingerprint)
