"""Laws of a run from its configuration: who trains, what is built, what is promised; and bad data are one sentence."""

import copy
import io
import json
import re
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from blindsight import cli, config, runs
from blindsight.accounting.events import Unit
from blindsight.accounting.ledger import Ledger
from blindsight.algorithms import AdaptiveClip, dp_fedavg
from blindsight.data import embedded
from blindsight.data.embedded import POPULATIONS
from blindsight.data.population import TEXT, Population
from blindsight.errors import InvalidInput, PrivacyError
from blindsight.jobs import load_model
from blindsight.jobs import train as jobs
from blindsight.jobs.algorithm import make_algorithm, make_privacy
from blindsight.jobs.classes import READ_OFF, assumed_classes, class_names, number_of_classes, numbered
from blindsight.jobs.optimizer import make_server_optimizer
from blindsight.jobs.public import has_other_clients, other_clients, read_public
from blindsight.jobs.tasks import classification_task, make_model, one_example_each, split_clients
from blindsight.models import CNN, MLP, Logistic

PRIVACY: dict[str, Any] = {"cohort": 5, "rounds": 2, "noise_multiplier": 1.0, "delta": 1e-3}


def settings(privacy: dict[str, Any] | None = None, **tables: Any) -> config.Config:
    table = {"name": "x", "data": {"population": "digits"}, "privacy": PRIVACY if privacy is None else privacy}
    return config.parse({**table, **tables})


def people(clients: int = 20, **columns: Any) -> Population:
    """Clients with 0, 1 or 2 examples each, whose field `who` says whose they are."""
    sizes = np.arange(clients) % 3
    who = np.repeat(np.arange(clients), sizes)
    fields = {"who": who, "label": who % 3, "x": who.astype(np.float32), **columns}
    return Population({name: column[: len(who)] for name, column in fields.items()}, sizes=sizes, name="people")


# --- who trains


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5, 0.95])
def test_held_out_clients_are_a_share_disjoint_from_the_rest_and_always_the_same(share):
    population = people(200)
    training, held_out = split_clients(population, share)
    assert held_out is not None
    assert abs(held_out.size - 200 * share) < 4 * np.sqrt(200 * share * (1 - share))
    assert sorted([*training.ids.tolist(), *held_out.ids.tolist()]) == sorted(population.ids.tolist())
    assert set(training.columns["who"]).isdisjoint(held_out.columns["who"])
    for part in (training, held_out):  # everyone keeps its own examples
        for client in range(part.size):
            assert set(part[client]["who"].tolist()) <= {int(str(part.ids[client]))}
    again = split_clients(people(200), share)
    assert [part.ids.tolist() for part in again if part] == [training.ids.tolist(), held_out.ids.tolist()]


def test_held_out_clients_are_not_the_first_ones():
    """A share of 1/2 taken at random: as many from the first half as from the second, within five deviations."""
    _, held_out = split_clients(people(400), 0.5)
    assert held_out is not None
    assert 50 < np.sum(held_out.ids.astype(int) < 200) < 150


@pytest.mark.parametrize("gone", [0, 7, 199])
def test_one_client_less_moves_nobody_else_in_or_out_of_training(gone):
    """The guarantee is for one client: a split by place would move dozens of others."""
    population = people(200)
    kept = np.delete(np.arange(200), gone)
    for whole, rest in zip(split_clients(population, 0.25), split_clients(population.select(kept), 0.25), strict=True):
        assert whole is not None
        assert rest is not None
        assert set(whole.ids.tolist()) - {str(gone)} == set(rest.ids.tolist())


def test_nobody_is_held_out_where_none_was_asked_for_or_none_falls_in_the_share():
    population = people(9)
    for share in (0.0, 1e-9):
        assert split_clients(population, share) == (population, None)
    with pytest.raises(InvalidInput, match=r"\[data\] held_out 0.9999 of 9 clients leaves nobody to train on"):
        split_clients(population, 0.9999)


def test_every_example_becomes_a_client_of_its_own():
    population = people(30)
    alone = one_example_each(population)
    assert (alone.size, alone.n_examples) == (population.n_examples, population.n_examples)
    assert set(alone.sizes.tolist()) == {1}
    for field, column in population.columns.items():
        np.testing.assert_array_equal(alone.columns[field], column)
    assert (alone.name, alone.classes, alone.synthetic) == (population.name, population.classes, population.synthetic)


# --- what is built


def made(population: Population, **model: Any) -> Any:
    return jax.eval_shape(lambda: make_model(settings(model=model).model, population))


IMAGES = {"image": np.zeros((40, 9, 8), np.uint8), "colour": np.zeros((40, 6, 6, 3), np.float32)}


@pytest.mark.parametrize(
    ("model", "kind", "inputs"),
    [
        ({"kind": "logistic"}, Logistic, 72),
        ({"kind": "logistic", "inputs": "colour"}, Logistic, 108),
        ({"kind": "logistic", "inputs": ["x", "who"]}, Logistic, 2),
        ({"kind": "mlp", "hidden": [5, 4], "inputs": "x"}, MLP, 1),
        ({"kind": "cnn", "channels": [2], "kernel": 3, "hidden": 7}, CNN, 5 * 4 * 2),
        ({"kind": "cnn", "channels": [2, 3], "inputs": "colour"}, CNN, 2 * 2 * 3),
    ],
)
def test_models_are_what_was_asked_for_and_fit_their_fields(model, kind, inputs):
    population = people(20, **IMAGES)
    found = made(population, **model)
    assert type(found) is kind
    first = {Logistic: lambda: found.output, MLP: lambda: found.layers[0], CNN: lambda: found.dense}[kind]()
    last = found.layers[-1] if kind is MLP else found.output
    assert first.weight.shape[0] == inputs
    assert last.bias.shape == (3,)  # labels 0, 1, 2 occur
    if kind is MLP:
        assert [layer.bias.shape for layer in found.layers] == [(5,), (4,), (3,)]


def test_the_seed_decides_the_initial_weights_and_nothing_else_does():
    weights = [
        make_model(settings(model={"kind": "logistic", "inputs": "x", "seed": seed}).model, people()).output.weight
        for seed in (0, 0, 1)
    ]
    assert np.array_equal(weights[0], weights[1])
    assert not np.array_equal(weights[0], weights[2])


def test_named_classes_count_even_if_they_do_not_occur():
    population = people(20)
    named = Population(population.columns, sizes=population.sizes, name="named", classes={"label": tuple("abcdefg")})

    def number(population: Population, **model: Any) -> int:
        return number_of_classes(config.ModelSettings(**model), population)

    assert (number(named), number(population)) == (7, 3)
    assert number(people(20, flag=np.zeros(40, bool)), label="flag") == 2
    assert number(people(20, same=np.zeros(40, np.uint8)), label="same") == 2
    assert number(population, classes=9) == 9  # what is listed counts, whatever occurs
    assert number(named, classes=("a", "g")) == 2


BAD_FIELDS = [
    ({"inputs": "pixels"}, "[model] names the field 'pixels', but people has who, label, x"),
    ({"label": "target", "inputs": "x"}, "[model] names the field 'target'"),
    ({"inputs": "text", "kind": "mlp"}, "[model] names 'text', which is text in people: these models read numbers"),
    ({"inputs": "x", "label": "text"}, "[model] names 'text', which is text in people: list its classes"),
    ({"inputs": "x", "label": "x"}, "[model] label 'x' must be one whole number for each example"),
    ({"inputs": "x", "label": "image"}, "[model] label 'image' must be one whole number"),
    ({"inputs": "x", "kind": "cnn"}, "[model] a cnn reads images, and x has shape []"),
    ({"inputs": ["x", "who"], "kind": "cnn"}, "[model] a cnn reads images, and x, who has shape [2]"),
    ({"inputs": ["image", "x"], "kind": "mlp"}, "[model] inputs combines 'image', of shape [9, 8], with other fields"),
]


@pytest.mark.parametrize(("model", "words"), BAD_FIELDS, ids=[words for _, words in BAD_FIELDS])
def test_fields_that_do_not_fit_are_one_sentence(model, words):
    extra = {"text": np.array(["a"] * 40)}
    with pytest.raises(InvalidInput) as refused:
        made(people(20, **IMAGES, **extra), **{"kind": "logistic", **model})
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


# --- which classes there are


def lettered(*words: str, names: tuple[str, ...] | None = None) -> Population:
    """A client with one example for each word, as text, or as a number among `names`."""
    column = np.array([names.index(word) for word in words]) if names else np.array(words, TEXT)
    columns = {"x": np.arange(len(words)).astype(np.float32), "label": column}
    classes = {"label": names} if names else {}
    return Population(columns, sizes=np.ones(len(words), int), name="letters", classes=classes)


def test_labels_become_numbers_of_the_listed_classes_however_they_are_written():
    listed = config.ModelSettings(classes=("c", "a"))
    for population in (lettered("a", "c", "b", "a"), lettered("a", "c", "b", "a", names=("a", "b", "c"))):
        found = numbered(listed, population)
        assert found.columns["label"].tolist() == [1, 0, 1]
        assert found.columns["x"].tolist() == [0, 1, 3]  # what is of no class goes with all its fields
        assert (found.sizes.tolist(), found.ids.tolist()) == ([1, 1, 0, 1], population.ids.tolist())
        assert found.classes["label"] == ("c", "a")
    values = np.array([0, 2**40, -1, 1, 2, -(2**40)])
    plain = Population({"label": values}, sizes=[3, 3], name="plain")
    for classes in (3, ("no", "yes", "maybe")):
        found = numbered(config.ModelSettings(classes=classes), plain)
        assert (found.columns["label"].tolist(), found.sizes.tolist()) == ([0, 1, 2], [1, 2])
    assert class_names(config.ModelSettings(classes=3), plain) == ("0", "1", "2")
    found = numbered(config.ModelSettings(), plain)  # nobody listed any
    assert (found.columns["label"].tolist(), found.sizes.tolist()) == ([0, 1, 2], [1, 2])
    assert number_of_classes(config.ModelSettings(), plain) == 3
    assert numbered(config.ModelSettings(), unchanged := people(20)) is unchanged


@pytest.mark.parametrize("strange", [-4, 3_000_000_000])
def test_nor_does_a_label_that_is_no_number_of_a_class_where_nobody_listed_them(strange):
    """It had been refused, and the number printed."""
    asked = settings({**PRIVACY, "sampler": "float"}, **LISTED | {"model": {"kind": "logistic", "inputs": "x"}})
    labels = np.arange(40) % 3
    odd = labels.copy()
    odd[7] = strange
    tasks = [classification_task(asked, one, one, one) for one in (people(40, label=c) for c in (labels, odd))]
    assert [task.classes for task in tasks] == [3, 3]
    assert [task.clients.size for task in tasks] == [40, 40]
    assert [task.clients.n_examples for task in tasks] == [39, 38]


@pytest.mark.parametrize("unit", ["client", "example"])
@pytest.mark.parametrize("strange", [pytest.param(9, marks=pytest.mark.slow), -4, 3_000_000_000])
def test_a_label_that_is_not_listed_changes_no_shape_no_promise_and_refuses_nothing(unit, strange, tmp_path):
    """Neighbours: one client's one example has a class of its own, and nobody can tell by what is published."""
    asked = settings({**PRIVACY, "sampler": "float", "unit": unit}, **LISTED)
    labels = np.arange(40) % 3
    odd = labels.copy()
    odd[7] = strange
    found = [
        jobs.run_training(asked, out=tmp_path / str(number), population=people(40, label=column))
        for number, column in enumerate((labels, odd))
    ]
    shapes = [jax.tree.map(jnp.shape, one.model) for one in found]
    assert shapes[0] == shapes[1]
    assert found[0].guarantee == found[1].guarantee
    assert READ_OFF not in found[0].guarantee.assumptions
    assert len({len((tmp_path / str(number) / "metrics.jsonl").read_text().splitlines()) for number in (0, 1)}) == 1
    kept = jobs.load_trained(tmp_path / "1", population=people(40, label=odd))
    assert jax.tree.all(jax.tree.map(np.array_equal, kept.model, found[1].model))


LISTED: dict[str, Any] = {"model": {"kind": "logistic", "inputs": "x", "classes": 3}, "data": {"population": "here"}}


def test_classes_that_nobody_listed_are_an_assumption_of_the_guarantee_from_the_first_write_on(tmp_path, monkeypatch):
    unlisted = settings({**PRIVACY, "sampler": "float"}, **LISTED | {"model": {"kind": "logistic", "inputs": "x"}})
    promised = list[Any]()
    write = runs.Run.write

    def watched(run: Any, file: str, value: Any) -> Path:
        promised.extend([value["assumptions"]] if file == "guarantee.json" else [])
        return write(run, file, value)

    monkeypatch.setattr(runs.Run, "write", watched)
    trained = jobs.run_training(unlisted, out=tmp_path / "run", population=people(40))
    assert READ_OFF in trained.guarantee.assumptions
    assert READ_OFF in trained.guarantee.explain()
    assert len(promised) == 2
    assert all(READ_OFF in said for said in promised)


@pytest.mark.parametrize(
    ("population", "model", "expected"),
    [
        ("digits", {}, ()),
        ("handwriting", {}, ()),
        ("digits", {"label": "image"}, (READ_OFF,)),  # no names are known of it
        ("letters.csv", {}, (READ_OFF,)),  # names, but a loader's
        ("letters.csv", {"classes": ["0", "1"]}, ()),
        ("letters.csv", {"classes": 2}, ()),
        ("letters.csv", {"kind": "word_lm"}, ()),
    ],
)
def test_only_data_that_everybody_has_say_their_own_classes(population, model, expected):
    here = embedded("digits")
    text = {"text": {"vocabulary": "words.txt"}}
    assert assumed_classes(settings(data={"population": population}, model=model, **text), here) == expected


def test_a_list_that_cannot_be_meant_is_refused_by_what_is_public_alone():
    zero = settings(model={"classes": ["zero", "1"]})
    with pytest.raises(InvalidInput, match=r"\[model\] classes lists 'zero', and digits has 0, 1, 2"):
        assumed_classes(zero, embedded("digits"))
    for named in (lettered("a", "b"), lettered("a", "b", names=("a", "b"))):
        with pytest.raises(InvalidInput, match="is for labels that are numbers, and the classes of 'label' in letters"):
            numbered(config.ModelSettings(classes=2), named)
    with pytest.raises(InvalidInput, match="one whole number"):
        numbered(config.ModelSettings(classes=2, label="x"), lettered("a"))
    with pytest.raises(InvalidInput, match="names the field 'no'"):
        numbered(config.ModelSettings(classes=2, label="no"), lettered("a"))


def test_a_run_of_before_the_setting_goes_on_with_its_own_noise():
    """`run.json` did not say `classes`; the root of a seeded run follows from what it says."""
    assert "classes" not in jobs.run_settings(settings())["model"]
    assert jobs.run_settings(settings(model={"classes": 10}))["model"]["classes"] == 10


def test_a_run_whose_clients_have_changed_says_so_and_not_that_settings_have(tmp_path):
    """As those do whom an older version held out: nothing in the settings tells."""
    asked = settings({**PRIVACY, "sampler": "float"}, **LISTED)
    jobs.run_training(asked, out=tmp_path / "run", population=people(40))
    for go_on in (
        lambda: jobs.run_training(asked, out=tmp_path / "run", population=people(60)),
        lambda: jobs.load_trained(tmp_path / "run", population=people(60)),
    ):
        with pytest.raises(
            InvalidInput, match=r"began with 3\d clients to train on, and now there are 5\d: .*new run in"
        ) as said:
            go_on()
        assert "settings" not in str(said.value)


def test_a_model_of_listed_classes_answers_in_the_order_in_which_it_is_asked(tmp_path):
    letters = lettered(*"abc" * 10, names=("a", "b", "c"))
    model = {"kind": "logistic", "inputs": "x", "classes": ["c", "a", "b"]}
    letters.save(tmp_path / "letters")
    asked = settings(
        {**PRIVACY, "sampler": "float"}, model=model, data={"population": str(tmp_path / "letters"), "held_out": 0.0}
    )
    trained = jobs.run_training(asked, out=tmp_path / "run")
    x = np.arange(4, dtype=np.float32)
    own = np.asarray(trained.model(x))
    np.testing.assert_allclose(load_model(tmp_path / "run").scores(x), own, rtol=1e-6)
    np.testing.assert_allclose(load_model(tmp_path / "run", ("b", "c")).scores(x), own[:, [2, 0]], rtol=1e-6)
    with pytest.raises(InvalidInput, match="knows the classes c, a, b, and the data have 'd'"):
        load_model(tmp_path / "run", ("a", "d"))


# --- what is promised


PROMISES = [
    {},
    {"adaptive_clip": 0.5},
    {"participation": "full"},
    {"participation": "full", "sampler": "float", "unit": "example"},
    {"participation": "unproven", "max_participations": 2},
]


@pytest.mark.parametrize("privacy", PROMISES, ids=str)
def test_noise_for_an_epsilon_keeps_it_with_what_is_really_released(privacy):
    """The algorithm's own event, grid and count included, is what the ledger will be charged with."""
    asked = settings({"cohort": 60, "rounds": 2, "epsilon": 2.0, "delta": 1e-4, **privacy})
    model = jax.tree.map(jnp.zeros_like, Logistic((6,), 3, key=jax.random.key(0)))
    found = make_privacy(asked, 200)
    assert found.noise_multiplier is not None
    assert (found.population, found.unit) == (200, Unit(privacy.get("unit", "client")))
    algorithm = make_algorithm(asked, model, found)
    promise = found.guarantee(delta=1e-4, release=algorithm.event)
    assert promise.epsilon <= 2.0
    assert promise.epsilon > 1.98  # and wastes nothing


def test_settings_of_privacy_arrive_as_they_were_given():
    for participation in ("poisson", "fixed", "full", "unproven"):
        found = make_privacy(settings({**PRIVACY, "clip": 0.3, "participation": participation}), 50)
        assert (found.participation, found.clip, found.noise_multiplier, found.rounds) == (participation, 0.3, 1.0, 2)
        assert found.cohort == 5
    none = make_privacy(settings({"cohort": 5, "rounds": 2, "none": True, "unit": "example"}), 50)
    assert (none.noise_multiplier, none.unit) == (0, Unit.EXAMPLE)
    assert none.clip > 1e15
    assert none.guarantee(delta=1e-3).epsilon == float("inf")
    few = make_privacy(
        settings({"cohort": 5, "rounds": 9, "none": True, "participation": "unproven", "max_participations": 2}), 50
    )
    assert few.max_participations == 2


def test_a_cohort_larger_than_the_population_is_one_sentence():
    with pytest.raises(InvalidInput, match=r"^\[privacy\] the cohort must be positive and at most the population of 4"):
        make_privacy(settings(), 4)


def test_the_algorithm_is_dp_fedavg_with_these_settings(monkeypatch):
    seen: dict[str, Any] = {}
    monkeypatch.setattr(
        "blindsight.jobs.algorithm.dp_fedavg", lambda *given, **named: seen.update(named) or dp_fedavg(*given, **named)
    )
    asked = settings(
        {**PRIVACY, "adaptive_clip": 0.3, "noise_multiplier": 0.1, "sampler": "float"},
        client={"learning_rate": 0.5, "batch_size": 4, "epochs": 3},
    )
    model = jax.tree.map(jnp.zeros_like, Logistic((6,), 3, key=jax.random.key(0)))
    algorithm = make_algorithm(asked, model, make_privacy(asked, 50))
    assert {name: seen[name] for name in ("batch_size", "epochs", "sampler")} == {
        "batch_size": 4,
        "epochs": 3,
        "sampler": "float",
    }
    assert seen["adaptive_clip"] == AdaptiveClip(0.3)
    assert jax.tree.structure(algorithm.init().params) == jax.tree.structure(model)
    update, _ = seen["client_optimizer"].update(np.float32(2.0), seen["client_optimizer"].init(np.float32(0)))
    assert float(update) == -1.0  # learning_rate x gradient


@pytest.mark.parametrize(
    ("server", "twin"),
    [
        ({}, optax.sgd(1.0)),
        ({"learning_rate": 0.5, "momentum": 0.3}, optax.sgd(0.5)),  # momentum is nesterov's
        ({"optimizer": "nesterov"}, optax.sgd(1.0, momentum=0.9, nesterov=True)),
        ({"optimizer": "adam", "learning_rate": 0.1}, optax.adam(0.1, eps=1e-3)),
    ],
    ids=["sgd", "sgd without momentum", "nesterov", "adam"],
)
def test_server_optimisers_step_as_optaxs_do(server, twin):
    made: Any = make_server_optimizer(settings(server=server).server)
    gradients, parameters = [np.float32(0.3), np.float32(-0.1), np.float32(0.2)], np.float32(0)
    with jax.numpy_dtype_promotion("standard"):  # Optax counts its steps in whole numbers
        states = [optimizer.init(parameters) for optimizer in (made, twin)]
        for gradient in gradients:
            (found, first), (expected, second) = (
                optimizer.update(gradient, state) for optimizer, state in zip((made, twin), states, strict=True)
            )
            states = [first, second]
            np.testing.assert_array_equal(found, expected)


# --- public data


@pytest.mark.parametrize("name", POPULATIONS)
def test_public_clients_of_a_population_are_other_people_or_refused(name):
    """What is read without noise must be nobody who is protected."""
    options = other_clients(name, clients=3)
    if not has_other_clients(name):
        assert options == {}
        with pytest.raises(PrivacyError, match="are the protected clients"):
            read_public(name, options, name, what="--reference")
        return
    public, protected = read_public(name, options, name, what="--reference"), embedded(name, clients=3)
    for field in public.fields:
        sizes = min(len(public.columns[field]), len(protected.columns[field]))
        if public.fields[field][1] or field == "text":  # images and sentences are drawn anew; numbers may coincide
            assert not np.array_equal(public.columns[field][:sizes], protected.columns[field][:sizes])
    assert public.fingerprint != protected.fingerprint


def test_only_data_that_exist_once_have_no_other_clients():
    assert [name for name in POPULATIONS if not has_other_clients(name)] == ["digits"]
    assert other_clients("people.csv") == {}


# --- the whole job, and bad data from the outside


RUN: dict[str, Any] = {
    "name": "tiny",
    "seed": 1,
    "data": {"population": "people.csv", "options": {"client": "who"}, "held_out": 0.2},
    "model": {"kind": "logistic", "inputs": ["age", "score"]},
    "client": {"batch_size": 2},
    "privacy": {**PRIVACY, "sampler": "float"},
}


def table(rows: int = 60) -> str:
    """A table of 20 people; what they buy depends on their age."""
    lines = [f"p{row % 20},{20 + row % 40},{(row * 7) % 10 / 10},{int(row % 40 > 20)},word" for row in range(rows)]
    return "\n".join(["who,age,score,label,text", *lines]) + "\n"


def train(folder: Path, run: dict[str, Any], *options: str) -> subprocess.CompletedProcess[str]:
    """`blindsight train` in this process, in `folder`."""
    text = [f"{key} = {json.dumps(value)}" for key, value in run.items() if not isinstance(value, dict)]
    inline = lambda part: "{ " + ", ".join(f"{k} = {json.dumps(v)}" for k, v in part.items()) + " }"  # noqa: E731
    for name, inner in run.items():
        if isinstance(inner, dict):
            shown = [f"{k} = {inline(v) if isinstance(v, dict) else json.dumps(v)}" for k, v in inner.items()]
            text += [f"[{name}]", *shown]
    (folder / "run.toml").write_text("\n".join(text) + "\n", encoding="utf-8")
    out, err, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["blindsight", "train", "run.toml", *options])
        try:
            cli.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
    return subprocess.CompletedProcess(options, code, out.getvalue(), err.getvalue())


def test_a_run_from_a_table_in_a_file_and_again(tmp_path, ledger_path):
    (tmp_path / "people.csv").write_text(table(), encoding="utf-8")
    done = train(tmp_path, RUN, "--json")
    assert done.returncode == 0, done.stderr
    first = json.loads(done.stdout)
    assert (first["run"], first["rounds"], first["stopped"]) == ("runs/tiny", 2, "finished")
    assert set(first["simulation_only"]) == {"accuracy", "loss"}
    names = {path.name for path in (tmp_path / "runs" / "tiny").iterdir()}
    assert names == {
        "run.json",
        "guarantee.json",
        "metrics.jsonl",
        "result.json",
        "lock",
        "checkpoint-00000001.safetensors",
        "checkpoint-00000002.safetensors",
    }
    assert json.loads((tmp_path / "runs" / "tiny" / "guarantee.json").read_text()) == first["guarantee"]
    entries = len(Ledger(ledger_path).entries())
    # run again: nothing happens and nothing is spent
    assert json.loads(train(tmp_path, RUN, "--json").stdout) == first
    assert len(Ledger(ledger_path).entries()) == entries
    # other settings in the same folder are refused, more rounds are not
    other = {**RUN, "client": {"batch_size": 3}}
    refused = train(tmp_path, other)
    assert refused.returncode == 2
    assert "other settings (client.batch_size)" in refused.stderr
    longer = {**RUN, "privacy": {**RUN["privacy"], "rounds": 3}}
    shown = train(tmp_path, longer)
    assert shown.returncode == 0
    assert shown.stdout.startswith("tiny: 3 rounds, finished\n")
    assert "held-out accuracy" in shown.stdout
    assert f"This holds if {READ_OFF}.\n" in shown.stdout  # the table's labels are numbers, and nobody listed them
    assert "Run folder: runs/tiny" in shown.stdout


def without(place: str, value: Any) -> dict[str, Any]:
    run = copy.deepcopy(RUN)
    *tables, key = place.split(".")
    inner = run
    for name in tables:
        inner = inner[name]
    inner[key] = value
    return run


BAD_DATA = [
    ("data.population", "nowhere.csv", "nowhere.csv is neither a file nor a population: the names are handwriting"),
    ("data.population", "empty.csv", "empty.csv"),
    ("data.population", "binary.csv", "binary.csv"),
    ("data.population", "unknown.xyz", "unknown.xyz has no supported format"),
    ("data.options", {"client": "person"}, "person"),
    ("data.options", {"client": "who", "colour": "red"}, "no option 'colour'"),
    ("data.options", {"client": 3}, "client"),
    ("model.inputs", ["age", "weight"], "[model] names the field 'weight'"),
    ("model.kind", "cnn", "give the type of 'age' in people.csv: [data] types = { age = \"number\" }"),
    ("data.options", {"client": "who", "text": ["age"]}, "[model] names 'age', which is text"),
    ("data.options", {"client": "who", "classes": ["age"]}, "give the type of 'age' in people.csv"),
    ("data.options", {"client": "who", "classes": "age"}, "classes of people.csv must be a list of columns, got 'age'"),
    ("data.types", {"age": "colour"}, "kind must be one of number, whole"),
    ("data.types", {"age": 3}, "[data] types age must be text in quotes, got 3"),
    ("data.types", {"age": "text"}, "[model] names 'age', which is text"),
    ("data.types", {"label": "number"}, "[model] label 'label' must be one whole number"),
    ("data.schema", "nowhere.json", "nowhere.json is not a JSON schema"),
    ("privacy.cohort", 100, "[privacy] the cohort must be positive and at most the population of 15"),
    ("privacy.adaptive_clip", 0.5, "adaptive clipping needs noise_multiplier < 0.5"),
    ("data.held_out", 0.99, "[data] held_out 0.99 of 20 clients leaves nobody"),
]


@pytest.mark.parametrize(
    ("place", "value", "words"), BAD_DATA, ids=[f"{place}={value}" for place, value, _ in BAD_DATA]
)
def test_bad_data_are_one_sentence_and_exit_code_2(place, value, words, tmp_path, ledger_path):
    (tmp_path / "people.csv").write_text(table(), encoding="utf-8")
    (tmp_path / "empty.csv").write_text("", encoding="utf-8")
    (tmp_path / "binary.csv").write_bytes(bytes(range(256)) * 4)
    (tmp_path / "unknown.xyz").write_bytes(b"what is this")
    done = train(tmp_path, without(place, value))
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert "\n" not in done.stderr.strip()
    assert not re.search("Traceback|TypeError|KeyError", done.stderr)
    assert not ledger_path.exists()  # nothing was paid for
    assert not (tmp_path / "runs").exists()  # and no run was begun


def test_held_out_clients_without_examples_are_not_told_from_others(tmp_path):
    population = Population(
        {"x": np.zeros(3, np.float32), "label": np.arange(3)}, sizes=[0] * 37 + [1, 1, 1], name="sparse"
    )
    population.save(tmp_path / "sparse")
    run = {**RUN, "data": {"population": "sparse", "held_out": 0.05}, "model": {"kind": "logistic", "inputs": "x"}}
    done = train(tmp_path, run, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["simulation_only"] == {}


def test_a_run_that_is_at_work_elsewhere_is_one_sentence(tmp_path):
    (tmp_path / "people.csv").write_text(table(), encoding="utf-8")
    asked = config.parse(RUN)
    run = runs.begin(tmp_path / "runs" / "tiny", "tiny", jobs.run_settings(asked))
    with run.alone():
        done = train(tmp_path, RUN)
    assert done.returncode == 2
    assert "another process is using runs/tiny" in done.stderr


def test_a_ledger_that_cannot_be_read_is_refused_before_a_run_has_a_guarantee(tmp_path, ledger_path):
    (tmp_path / "people.csv").write_text(table(), encoding="utf-8")
    ledger_path.write_bytes(b"this is no ledger" * 100)
    done = train(tmp_path, without("name", "people"))
    assert done.returncode == 2, done.stderr
    assert not list(tmp_path.rglob("guarantee.json"))


def test_no_round_within_the_budget_is_refused_with_exit_code_3(tmp_path, ledger_path):
    (tmp_path / "people.csv").write_text(table(), encoding="utf-8")
    Ledger(ledger_path).set_budget("people", epsilon=0.01, delta=1e-6)
    done = train(tmp_path, RUN)
    assert done.returncode == 3
    assert "not even one round fits the budget of population 'people'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("participation", ["poisson", "unproven"])
@pytest.mark.parametrize("audit", [None, {"one_run": 4}], ids=["plain", "audited"])
def test_a_run_refused_by_a_spent_budget_leaves_its_folder_to_the_corrected_one(
    tmp_path, ledger_path, participation, audit
):
    (tmp_path / "people.csv").write_text(table(), encoding="utf-8")
    Ledger(ledger_path).set_budget("people", epsilon=0.01, delta=1e-6)
    run = {**RUN, "privacy": {**RUN["privacy"], "participation": participation}} | ({"audit": audit} if audit else {})
    assert train(tmp_path, run).returncode == 3
    assert [path.name for path in (tmp_path / "runs" / "tiny").glob("*.json")] == []
    Ledger(ledger_path).set_budget("people", epsilon=1000.0, delta=1e-6)
    corrected = {**run, "privacy": {**run["privacy"], "clip": 0.25}} | ({"audit": {"one_run": 6}} if audit else {})
    assert train(tmp_path, corrected).returncode == 0
    if audit:
        assert len(runs.open_run(tmp_path / "runs" / "tiny").read("planted.json")["clients"]) == 6


def test_a_run_that_has_released_something_keeps_its_settings_when_it_is_refused(tmp_path, ledger_path):
    (tmp_path / "people.csv").write_text(table(), encoding="utf-8")
    assert train(tmp_path, RUN).returncode == 0
    before = (tmp_path / "runs" / "tiny" / "run.json").read_bytes()
    assert train(tmp_path, RUN, "--ledger", str(tmp_path / "another.db")).returncode == 3  # it lacks this run's rounds
    assert (tmp_path / "runs" / "tiny" / "run.json").read_bytes() == before
