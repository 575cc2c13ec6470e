"""`blindsight audit` from a configuration to its exit code: classifiers, language models, and what is refused."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest
from typer.testing import CliRunner

from blindsight import config, jobs, keys, runs
from blindsight.accounting.ledger import Ledger
from blindsight.algorithms.dp_fedavg_gan import dp_fedavg_gan
from blindsight.algorithms.gan_server import GeneratorSteps
from blindsight.audit.membership import client_scores, direction_scores
from blindsight.audit.planting import Planted, joined
from blindsight.backends import Simulation
from blindsight.cli import app
from blindsight.codings.images_and_rows import coding_of
from blindsight.data import embedded
from blindsight.data.population import Population
from blindsight.errors import InvalidInput, PrivacyError
from blindsight.jobs.algorithm import make_privacy
from blindsight.jobs.planting import plant
from blindsight.jobs.tasks import TrainingTask, one_example_each
from blindsight.models.gan import compact_gan
from blindsight.privacy import Privacy

KEY = keys.reproducible(1)
CLASSIFIER = """
name = "pictures"
seed = 3
[data]
population = "handwriting"
options = { clients = 20, examples = [3, 5] }
held_out = 0
[model]
kind = "logistic"
[privacy]
noise_multiplier = 1.0
delta = 1e-3
cohort = 18
participation = "full"
rounds = 2
"""
LANGUAGE = """
name = "words"
seed = 3
[data]
population = "forum"
options = { clients = 20 }
held_out = 0
[model]
kind = "word_lm"
embedding = 8
cells = 8
[text]
vocabulary = "forum"
vocabulary_options = { clients = 30, seed = 9 }
vocabulary_size = 150
sentences = 6
length = 8
[privacy]
noise_multiplier = 1.0
delta = 1e-3
cohort = 5
rounds = 2
"""


def load(folder: Path, text: str) -> config.Config:
    path = folder / "run.toml"
    path.write_text(text)
    return config.load(path)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classifier")
    settings = load(folder, CLASSIFIER + "[audit]\none_run = 30\ndirections = 60\n")
    return jobs.run_training(settings, out=folder / "run", ledger=Ledger(folder / "ledger.db")).path


@pytest.fixture(scope="module")
def language(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("language")
    audit = "[audit]\nclients = [1, 2]\ncopies = [1, 5]\nrepeats = 2\none_run = 10\nwords = 4\n"
    return jobs.run_training(load(folder, LANGUAGE + audit), out=folder / "run", ledger=Ledger(folder / "l.db")).path


def copy(run: Path, folder: Path) -> Path:
    return Path(shutil.copytree(run, folder / "copy"))


def test_a_classifier_is_audited_by_clients_and_by_directions(classifier: Path, tmp_path: Path):
    report, page = jobs.run_audit(classifier, out=tmp_path)
    assert report.outcome == "consistent"
    assert set(report.bounds) == {"clients", "directions"}
    planted = json.loads((classifier / "planted.json").read_text())
    assert report.bounds["directions"].canaries == 60
    assert report.bounds["directions"].included == planted["directions"].count("1")
    assert {bound.confidence for bound in report.bounds.values()} == {0.975}  # together 95 %
    assert page == tmp_path / "audit.html"
    assert json.loads((tmp_path / "audit.json").read_text())["verdict"] == report.verdict
    assert report.canaries == ()
    assert len(report.notes) == 2  # 90 canaries at such a delta cannot contradict the claim, and that is said
    assert "plant more" in report.notes[0]


def test_the_ledger_is_charged_for_the_real_clients_alone(classifier: Path, tmp_path: Path):
    alone = jobs.run_training(load(tmp_path, CLASSIFIER), out=tmp_path / "run", ledger=Ledger(tmp_path / "l.db"))
    beside, plain = Ledger(classifier.parent / "ledger.db"), Ledger(tmp_path / "l.db")
    released = [[entry.event for entry in book.entries() if entry.kind == "release"] for book in (beside, plain)]
    assert released[0] == released[1]
    assert (classifier / "guarantee.json").read_bytes() == (alone.path / "guarantee.json").read_bytes()
    assert not (alone.path / "planted.json").exists()


def test_a_run_goes_on_with_the_canaries_that_it_began_with(classifier: Path, tmp_path: Path):
    run = copy(classifier, tmp_path)
    before = (run / "planted.json").read_bytes()
    settings = load(
        tmp_path, CLASSIFIER.replace("rounds = 2", "rounds = 3") + "[audit]\none_run = 30\ndirections = 60\n"
    )
    jobs.run_training(settings, out=run, ledger=Ledger(classifier.parent / "ledger.db"))
    assert (run / "planted.json").read_bytes() == before


@pytest.mark.slow
def test_a_language_model_is_ranked_searched_and_guessed(language: Path, tmp_path: Path):
    report, _ = jobs.run_audit(language, references=300, out=tmp_path)
    assert [(row.clients, row.copies, len(row.ranks)) for row in report.configurations] == [
        (1, 1, 2),
        (1, 5, 2),
        (2, 1, 2),
        (2, 5, 2),
    ]
    assert all(1 <= one.rank <= 301 and len(one.phrase.split()) == 4 for one in report.canaries)
    assert report.configurations[3].times_seen == pytest.approx(0.575 * 2 * 2 * 5)
    again, _ = jobs.run_audit(language, references=300, out=tmp_path)
    assert again.canaries == report.canaries


def test_a_claim_that_is_proved_wrong_is_exit_code_3(classifier: Path, tmp_path: Path):
    """The same run with next to no noise, which claims half an epsilon: 60 coins can prove 1.23 at most."""
    settings = load(
        tmp_path,
        CLASSIFIER.replace("noise_multiplier = 1.0", 'noise_multiplier = 0.001\nsampler = "float"')
        + "[audit]\ndirections = 60\n",
    )
    run = jobs.run_training(settings, out=tmp_path / "run", ledger=Ledger(tmp_path / "l.db")).path
    claim = json.loads((classifier / "guarantee.json").read_text()) | {"epsilon": 0.5}
    (run / "guarantee.json").write_text(json.dumps(claim))
    done = CliRunner().invoke(app, ["audit", str(run), "--json"])
    assert isinstance(done.exception, PrivacyError)
    assert done.exception.exit_code == 3
    assert "The implementation or the claim is broken" in str(done.exception)
    assert json.loads(done.stdout)["bounds"]["directions"]["epsilon"] > 0.5


def test_the_command_prints_the_report(classifier: Path, tmp_path: Path):
    done = CliRunner().invoke(app, ["audit", str(classifier), "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "does not" in done.output
    assert (tmp_path / "audit.html").exists()


def test_what_cannot_be_audited_is_one_sentence(classifier: Path, language: Path, tmp_path: Path):
    run = copy(language, tmp_path)
    with pytest.raises(InvalidInput, match="width must be between 1"):
        jobs.run_audit(run, references=10, width=1000)
    words = json.loads((run / "vocabulary.json").read_text())
    planted = json.loads((run / "planted.json").read_text())
    known = planted["canaries"]["phrases"][0][0]
    others = [word if word != known else "elsewhere-not-known" for word in words["words"]]
    (run / "vocabulary.json").write_text(json.dumps(words | {"words": others}))
    with pytest.raises(InvalidInput, match="lacks the canary word"):
        jobs.run_audit(run, references=10)
    (run / "vocabulary.json").write_bytes(b"\xff\xfe no text")
    with pytest.raises(InvalidInput, match=r"vocabulary\.json"):
        jobs.run_audit(run, references=10)
    (run / "planted.json").write_text('{"format": 1}')
    shutil.copy(language / "vocabulary.json", run)
    with pytest.raises(InvalidInput, match="is damaged"):
        jobs.run_audit(run, references=10)
    shutil.copy(language / "planted.json", run)
    (run / "guarantee.json").write_text('{"epsilon": 1.0}')
    with pytest.raises(InvalidInput, match=r"damaged guarantee\.json"):
        jobs.run_audit(run, references=10)
    (run / "result.json").unlink()
    with pytest.raises(InvalidInput, match="has not finished training"):
        jobs.run_audit(run, references=10)
    (run / "planted.json").unlink()
    with pytest.raises(InvalidInput, match="has no canaries"):
        jobs.run_audit(run, references=10)
    with pytest.raises(InvalidInput, match="is not a run"):
        jobs.run_audit(tmp_path)
    for checkpoint in (unfinished := Path(shutil.copytree(classifier, tmp_path / "other"))).glob("checkpoint-*"):
        checkpoint.unlink()
    with pytest.raises(InvalidInput, match="no checkpoint"):
        jobs.run_audit(unfinished)


def planted_in(folder: Path, text: str, *, key: keys.Key) -> Planted:
    """The backend of a run of 20 clients that has not begun to train."""
    settings = load(folder, text)
    some = embedded("handwriting", clients=20, examples=(3, 5))
    some = one_example_each(some) if settings.privacy.unit == "example" else some
    run, privacy = runs.begin(folder / "run", "run", {}), make_privacy(settings, some.size)
    backend = plant(settings, TrainingTask(None, some, None, {}, classes=10), privacy, run=run, key=key)
    assert isinstance(backend, Planted)
    return backend


def test_coins_are_fair_and_clients_that_are_in_come_as_often_as_real_ones(tmp_path: Path):
    text = CLASSIFIER.replace('"full"', '"poisson"').replace("cohort = 18", "cohort = 5")
    backend = planted_in(tmp_path, text + "[audit]\ndirections = 2000\n", key=keys.root())
    assert backend.first == 20
    assert np.unique(backend.rates).tolist() == [0.0, 5 / 20]
    assert 880 < np.sum(backend.rates > 0) < 1120  # 1000 expected, 22 the standard deviation
    again = planted_in(tmp_path, text + "[audit]\ndirections = 2000\n", key=keys.root())
    assert np.array_equal(again.rates, backend.rates)  # a run that goes on reads its coins from the folder


def test_where_examples_are_protected_a_canary_is_one_example(tmp_path: Path):
    text = CLASSIFIER.replace("rounds = 2", 'rounds = 2\nunit = "example"')
    backend = planted_in(tmp_path, text + "[audit]\none_run = 8\n", key=KEY)
    population = backend.backend.population  # pyright: ignore[reportAttributeAccessIssue]
    assert set(population.sizes.tolist()) == {1}
    assert set(backend.rates.tolist()) == {0.0, 1.0}  # everyone takes part


@pytest.mark.parametrize(
    ("text", "audit", "words"),
    [
        (CLASSIFIER, "", "plants no clients"),
        (CLASSIFIER, "one_run = -1", "0 or more"),
        (CLASSIFIER, "directions = 5\nrate = 0.0", "a probability above 0"),
        (LANGUAGE, "prefix = 5", "fewer than words"),
        (LANGUAGE, "copies = []", "numbers of at least 1"),
        (LANGUAGE, "copies = [50]", r"at most \[text\] sentences"),
        (LANGUAGE, "copies = [2]\nwords = 9", r"fewer than \[text\] length"),
        (
            LANGUAGE.replace("noise_multiplier = 1.0", "none = true"),
            "copies = [2]\ndirections = 5",
            "the length of the clip",
        ),
        (
            LANGUAGE.replace("rounds = 2", 'rounds = 2\nparticipation = "unproven"\nmax_participations = 1'),
            "copies = [2]\none_run = 5",
            "max_participations",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(text: str, audit: str, words: str, tmp_path: Path):
    with pytest.raises(InvalidInput, match=words):
        load(tmp_path, f"{text}[audit]\n{audit}\n")


def test_sentences_of_protected_clients_are_not_given_to_canaries(tmp_path: Path):
    settings = load(tmp_path, f"{LANGUAGE}[audit]\ncopies = [2]\npublic_options = {{ clients = 20 }}\n")
    with pytest.raises(PrivacyError, match=r"\[audit\] public = .* are the protected clients"):
        jobs.run_training(settings, out=tmp_path / "run", ledger=Ledger(tmp_path / "l.db"))


def test_every_key_and_its_default_are_documented():
    page = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
    section = page.split("`[audit]`", 1)[1].split("\n#")[0]
    rows = {row.split("|")[1].strip(" `"): row.split("|")[2] for row in section.splitlines() if row.startswith("| `")}
    fields = dataclasses.fields(config.AuditSettings)
    assert list(rows) == [field.name for field in fields]
    for field in fields:
        if field.default is not dataclasses.MISSING:
            assert f"`{json.dumps(field.default)}`" in rows[field.name]


@pytest.mark.slow
def test_letters_are_audited_too(tmp_path: Path):
    text = LANGUAGE.replace("word_lm", "char_lm").replace("cells = 8", "cells = 8\nlayers = 1")
    audit = "[audit]\nclients = [2]\ncopies = [3]\nrepeats = 1\none_run = 8\nwords = 4\n"
    run = jobs.run_training(load(tmp_path, text + audit), out=tmp_path / "run", ledger=Ledger(tmp_path / "l.db")).path
    report, _ = jobs.run_audit(run, references=50)
    assert report.canaries[0].phrase.isalpha()
    assert len(report.canaries[0].phrase) == 4


@pytest.mark.slow
def test_a_gan_is_audited_by_its_critic_and_by_directions():
    generator = np.random.default_rng(0)

    def rows(count: int) -> Population:
        number = generator.random(count).astype(np.float32).repeat(2)
        return Population({"x": number, "y": number**2}, sizes=np.full(count, 2), name="rows")

    real, canaries, key = rows(6), rows(4), keys.reproducible(1)
    coding = coding_of(real, ranges={"x": (0.0, 1.0), "y": (0.0, 1.0)})
    gan = compact_gan(coding, latents=2, hidden=(8,), width=16, key=jax.random.key(0))
    privacy = Privacy.none(population=6, cohort=6, rounds=1, participation="full")
    rates: Any = {"critic_rate": 0.05, "critic_optimizer": optax.sgd(1.0), "critic_steps": 1, "batch_size": 2}
    steps = GeneratorSteps(optimizer=optax.sgd(1e-3), batch_size=32, steps=1)
    algorithm = dp_fedavg_gan(gan, privacy, **rates, generator=steps)
    planted = Planted(Simulation(joined(real, [canaries])), 6, [1.0] * 4)
    state, _ = algorithm.step(algorithm.init(), planted.cohort(np.arange(6), n_expected=6.0, key=key), key=key)
    trained = algorithm.model(state)

    def critic_loss(gan: Any, batch: Any, key: jax.Array) -> jax.Array:
        """What the critic takes for real was likely in the training data."""
        return -batch.mean(gan.critic(gan.coding.encode(batch), gan.labels(batch), batch.weight))

    scores = client_scores(trained, canaries, critic_loss)
    assert scores.shape == (4,)
    assert np.isfinite(scores).all()
    assert direction_scores(gan.critic, trained.critic, 2, key=key).shape == (2,)
