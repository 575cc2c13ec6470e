"""Laws of RUN.toml: every key is read and documented, and what makes no sense is one sentence that says where."""

import copy
import dataclasses
import datetime
import io
import json
import re
import subprocess
import sys
import tomllib
import types
import typing
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Literal

import pytest

from blindsight import cli, config
from blindsight.errors import InvalidInput

ROOT = Path(__file__).parents[1]
SMALL: dict[str, Any] = {
    "name": "small",
    "data": {"population": "handwriting"},
    "privacy": {"cohort": 10, "rounds": 3, "noise_multiplier": 1.0, "delta": 1e-5},
}
TABLES = {
    field.name: hint
    for field in dataclasses.fields(config.Config)
    if dataclasses.is_dataclass(hint := typing.get_type_hints(config.Config)[field.name])
}


def changed(place: str, value: Any) -> dict[str, Any]:
    """The small configuration with one value set, or left out if it is `...`."""
    table = copy.deepcopy(SMALL)
    *tables, key = place.split(".")
    inner = table
    for name in tables:
        inner = inner.setdefault(name, {})
    if value is ...:
        inner.pop(key)
    else:
        inner[key] = value
    return table


def to_toml(table: dict[str, Any]) -> str:
    """TOML as one would write it: every value but a table looks as in JSON."""

    def value(part: Any) -> str:
        if isinstance(part, dict):
            return "{ " + ", ".join(f"{key} = {value(inner)}" for key, inner in part.items()) + " }"
        return json.dumps(part)

    lines = [f"{key} = {value(part)}" for key, part in table.items() if not isinstance(part, dict)]
    for name, inner in table.items():
        if isinstance(inner, dict):
            lines += [f"[{name}]", *(f"{key} = {value(part)}" for key, part in inner.items())]
    return "\n".join(lines) + "\n"


def without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_none(part) for key, part in value.items() if part is not None}
    return list(value) if isinstance(value, tuple) else value


# --- what is read


def another(hint: Any, default: Any) -> Any:
    """A value that the type allows and that differs from the default."""
    if typing.get_origin(hint) is types.UnionType:
        hint = next(part for part in typing.get_args(hint) if part is not types.NoneType)
    if typing.get_origin(hint) is Literal:
        return next(word for word in typing.get_args(hint) if word != default)
    if typing.get_origin(hint) is tuple:
        return {str: ["a", "b"], int: [7], float: [0.25]}[typing.get_args(hint)[0]]
    if typing.get_origin(hint) is dict:
        return (
            {"clients": 5, "fault": "invert:0.5", "fields": ["a"]} if Any in typing.get_args(hint) else {"age": "whole"}
        )
    return {int: 7, float: 0.25, str: "other", bool: True}[hint]


KEYS = [(table, field.name) for table, kind in TABLES.items() for field in dataclasses.fields(kind)]


@pytest.mark.parametrize(("table", "key"), KEYS, ids=[f"{table}.{key}" for table, key in KEYS])
def test_every_key_is_read_and_comes_back(table, key, tmp_path):
    kind = TABLES[table]
    field = next(field for field in dataclasses.fields(kind) if field.name == key)
    value = another(typing.get_type_hints(kind)[key], field.default)
    table_with = changed(f"{table}.{key}", value)
    if key in ("epsilon", "none"):
        table_with["privacy"].pop("noise_multiplier")
    if key == "max_participations":
        table_with["privacy"]["participation"] = "unproven"
    path = tmp_path / "run.toml"
    path.write_text(to_toml(table_with), encoding="utf-8")
    found = config.load(path)
    assert without_none(dataclasses.asdict(found))[table][key] == value
    again = config.parse(tomllib.loads(to_toml(without_none(found.to_dict()))))
    assert again == found
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))[table][key] == value  # as run.json keeps it


def test_what_is_written_as_toml_reads_the_same():
    for path in sorted((ROOT / "examples").glob("*.toml")):
        found = config.load(path)
        assert config.parse(tomllib.loads(config.as_toml(found))) == found
    odd = changed("data.options", {"client": 'a "b" é', "fields": ["x"], "n": 3, "deep": {"yes": True}})
    assert config.parse(tomllib.loads(config.as_toml(config.parse(odd)))) == config.parse(odd)


def test_what_is_left_out_has_the_default_of_its_field():
    found = config.parse(SMALL)
    assert found.model == config.ModelSettings()
    assert (found.client, found.server, found.training) == (
        config.ClientSettings(),
        config.ServerSettings(),
        config.TrainingSettings(),
    )
    assert found.seed is None
    assert type(found.privacy.cohort) is float  # 10 was meant as a number


def test_one_value_stands_for_a_list_of_one():
    assert config.parse(changed("model.inputs", "age")).model.inputs == ("age",)
    assert config.parse(changed("model.hidden", 8)).model.hidden == (8,)


def test_classes_are_a_number_or_names():
    assert config.parse(changed("model.classes", 4)).model.classes == 4
    found = config.parse(changed("model.classes", ["ham", "spam"]))
    assert found.model.classes == ("ham", "spam")
    assert config.parse(tomllib.loads(config.as_toml(found))) == found
    assert config.parse(config.without_nulls(json.loads(json.dumps(found.to_dict())))) == found


def test_every_example_is_valid():
    examples = sorted((ROOT / "examples").glob("*.toml"))
    assert len(examples) >= 3
    for path in examples:
        assert config.load(path).name


def test_every_key_and_its_default_are_documented():
    page = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    for table, kind in TABLES.items():
        assert f"`[{table}]`" in page, table
        section = page.split(f"`[{table}]`", 1)[1].split("\n#")[0]
        rows = {row.split("|")[1].strip(): row for row in section.splitlines() if row.startswith("| `")}
        for field in dataclasses.fields(kind):
            assert f"`{field.name}`" in rows, f"[{table}] {field.name}"
            if field.default not in (dataclasses.MISSING, None):
                shown = json.dumps(without_none(field.default))
                assert f"`{shown}`" in rows[f"`{field.name}`"].split("|")[2], f"[{table}] {field.name} = {shown}"
        assert set(rows) == {f"`{field.name}`" for field in dataclasses.fields(kind)}, table
    for field in dataclasses.fields(config.Config):
        assert f"`{field.name}`" in page or f"`[{field.name}]`" in page


# --- what is refused

BAD: list[tuple[str, Any, str]] = [
    # place, value, words of the sentence
    ("name", ..., "the top level needs 'name'"),
    ("name", "", "name must not be empty, contain slashes"),
    ("name", "../elsewhere", "name must not be empty, contain slashes"),
    ("name", "a/b", "name must not be empty, contain slashes"),
    ("name", 7, "name must be text in quotes, got 7"),
    ("seed", 1.5, "seed must be a whole number"),
    ("seed", True, "seed must be a whole number"),
    ("sed", 1, "the top level has no 'sed': did you mean 'seed'?"),
    ("privcy.rounds", 1, "the top level has no 'privcy': did you mean 'privacy'?"),
    ("xyz", 1, "the top level has no 'xyz': there are name, data"),
    ("data", ..., "the top level needs a table [data]"),
    ("privacy", ..., "the top level needs a table [privacy]"),
    ("data", "handwriting", "data must be a table, [data]"),
    ("data.population", ..., "[data] needs 'population'"),
    ("data.population", 3, "[data] population must be text in quotes"),
    ("data.held_out", 1.0, "[data] held_out must be a share of the clients, in [0, 1), got 1.0"),
    ("data.held_out", -0.1, "[data] held_out"),
    ("data.heldout", 0.1, "[data] has no 'heldout': did you mean 'held_out'?"),
    ("data.options", "clients", "[data] options must be a table"),
    ("data.options.when", datetime.date(2020, 1, 1), "[data] options when must be text, a number"),
    ("data.options.alpha", float("nan"), "[data] options alpha must be"),
    ("model.kind", "resnet", "[model] kind must be one of logistic, mlp, cnn, word_lm, char_lm, gan, got 'resnet'"),
    ("model.inputs", [], "[model] inputs must be at least one field"),
    ("model.inputs", [1], "[model] inputs must be text in quotes"),
    ("model.classes", 1, "[model] classes must be names, or a number from 2 to 1,000,000, got 1"),
    ("model.classes", ["one"], "[model] classes must be a number, or at least two different names"),
    ("model.classes", ["a", "a"], "[model] classes must be a number, or at least two different names"),
    ("model.classes", ["a", " "], "[model] classes must be a number, or at least two different names"),
    ("model.classes", [1, 2], "[model] classes must be text in quotes, got 1"),
    ("model.classes", "ten", "[model] classes must be a whole number, got 'ten'"),
    ("model.hidden", [8, 0], "[model] hidden must be sizes of at least 1"),
    ("model.hidden", [8, 8], "[model] hidden must be one size for a cnn"),
    ("model.channels", [], "[model] channels"),
    ("model.kernel", 0, "[model] kernel must be at least 1, got 0"),
    ("model.activation", "gelu", "[model] activation must be one of relu, tanh"),
    ("model.seed", 2**70, "[model] seed"),
    ("model.depth", 3, "[model] has no 'depth'"),
    ("model.layers", 0, "[model] layers must be at least 1"),
    ("text.length", 0, "[text] length must be between 1"),
    ("text.sentences", 0, "[text] sentences must be at least 1"),
    ("text.vocabulary_epsilon", 0, "[text] vocabulary_epsilon must be positive"),
    ("text.case", "upper", "[text] case must be one of lower, keep"),
    ("tune.clip", [0.5, 0], "[tune] clip must be positive"),
    ("tune.momentum", 1, "[tune] momentum must be in [0, 1)"),
    ("tune.rounds", 0, "[tune] rounds must be at least 1"),
    ("tune.cohort", 0, "[tune] cohort must be at least 1"),
    ("client.learning_rate", 0, "[client] learning_rate must be positive, got 0.0"),
    ("client.learning_rate", "fast", "[client] learning_rate must be a number, got 'fast'"),
    ("client.learning_rate", float("inf"), "[client] learning_rate must be a number"),
    ("client.batch_size", 0, "[client] batch_size must be at least 1"),
    ("client.batch_size", 2.0, "[client] batch_size must be a whole number, got 2.0"),
    ("client.epochs", -1, "[client] epochs"),
    ("client.lr", 0.1, "[client] has no 'lr'"),
    ("server.optimizer", "adamw", "[server] optimizer must be one of sgd, nesterov, adam"),
    ("server.optimiser", "adam", "[server] has no 'optimiser': did you mean 'optimizer'?"),
    ("server.momentum", 1, "[server] momentum must be in [0, 1)"),
    ("server.learning_rate", -1, "[server] learning_rate"),
    ("privacy.rounds", ..., "[privacy] needs 'rounds'"),
    ("privacy.cohort", ..., "[privacy] needs 'cohort'"),
    ("privacy.delta", ..., "[privacy] needs a delta"),
    ("privacy.noise_multiplier", ..., "[privacy] needs one of epsilon, noise_multiplier or none = true"),
    ("privacy.epsilon", 1.0, "got epsilon and noise_multiplier"),
    ("privacy.none", True, "got noise_multiplier and none"),
    ("privacy.none", "yes", "[privacy] none must be true or false"),
    ("privacy.noise_multiplier", 0, "[privacy] noise_multiplier must be positive (or write none = true)"),
    ("privacy.noise_multiplier", -1, "[privacy] noise_multiplier"),
    ("privacy.delta", 1, "[privacy] delta must be between 0 and 1, got 1.0"),
    ("privacy.cohort", 0, "[privacy] cohort must be positive"),
    ("privacy.cohort", float("nan"), "[privacy] cohort must be a number"),
    ("privacy.rounds", 0, "[privacy] rounds must be at least 1"),
    ("privacy.rounds", 1e3, "[privacy] rounds must be a whole number"),
    ("privacy.clip", 0, "[privacy] clip must be positive"),
    ("privacy.adaptive_clip", 1, "[privacy] adaptive_clip must be between 0 and 1"),
    ("privacy.participation", "lottery", "[privacy] participation must be one of poisson, fixed, full, unproven"),
    ("privacy.max_participations", 3, "leave it out"),
    ("privacy.max_participations", 0, "[privacy] max_participations must be at least 1"),
    ("privacy.unit", "household", "[privacy] unit must be one of client, example"),
    ("privacy.sampler", "fast", "[privacy] sampler must be one of exact, float"),
    ("privacy.epsilom", 1, "[privacy] has no 'epsilom': did you mean 'epsilon'?"),
    ("training.evaluate_every", -1, "[training] evaluate_every must be 0 or more"),
    ("training.checkpoint_every", 0, "[training] checkpoint_every must be at least 1"),
    ("training.checkpoint_seconds", 0, "[training] checkpoint_seconds must be positive"),
    ("training.checkpoints_every", 5, "did you mean 'checkpoint_every'?"),
]


def one_sentence(text: str) -> None:
    assert "\n" not in text.strip()
    assert not re.search(r"Traceback|Error\b|<class|dataclass", text), text
    assert len(text) < 400


@pytest.mark.parametrize(("place", "value", "words"), BAD, ids=[f"{place}={value}" for place, value, _ in BAD])
def test_what_makes_no_sense_is_one_sentence_that_says_where(place, value, words):
    with pytest.raises(InvalidInput) as refused:
        config.parse(changed(place, value))
    assert words in str(refused.value)
    one_sentence(str(refused.value))


COMBINED = [
    ({"none": True, "adaptive_clip": 0.5}, "leave adaptive_clip out"),
    ({"participation": "fixed", "cohort": 2.5, "noise_multiplier": 1.0}, "[privacy] cohort must be a whole number"),
    ({"epsilon": 0.0}, "[privacy] epsilon must be positive"),
    ({"epsilon": -1.0}, "[privacy] epsilon must be positive"),
]


@pytest.mark.parametrize(("privacy", "words"), COMBINED)
def test_settings_of_privacy_that_do_not_fit_together_are_refused(privacy, words):
    table = {**SMALL, "privacy": {"cohort": 10, "rounds": 3, "delta": 1e-5, **privacy}}
    with pytest.raises(InvalidInput, match=re.escape(words)):
        config.parse(table)


def train(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`blindsight train` in this process."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["blindsight", "train", *arguments])
        try:
            cli.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


FILES = {
    "not TOML": ("name = ", "is not TOML"),
    "not text": (b"\xff\xfe\x00", "is not TOML"),
    "empty": ("", "needs 'name'"),
    "a key twice": ('name = "a"\nname = "b"\n', "is not TOML"),
    "a misspelt table": (to_toml(changed("modl.kind", "cnn")), "did you mean 'model'?"),
    "a misspelt key": (to_toml(changed("privacy.delte", 1e-5)), "[privacy] has no 'delte': did you mean 'delta'?"),
    "a wrong type": (to_toml(changed("privacy.rounds", "many")), "[privacy] rounds must be a whole number"),
    "markup": (to_toml(changed("[bold]x", 1)).replace("[bold]x", '"[bold]x"'), "has no '[bold]x'"),
}


@pytest.mark.parametrize("case", FILES)
def test_a_bad_file_has_its_name_in_one_sentence_and_exit_code_2(case, tmp_path):
    text, words = FILES[case]
    path = tmp_path / "run.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    done = train(str(path))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert str(path) in done.stderr
    assert words in done.stderr
    one_sentence(done.stderr.replace("TOMLDecodeError", ""))
    assert not (tmp_path / "runs").exists()  # nothing was begun


def test_a_file_that_is_not_there_or_a_folder_is_one_sentence(tmp_path):
    for path in (tmp_path / "nothing.toml", tmp_path):
        done = train(str(path))
        assert done.returncode == 2
        assert f"cannot read {path}" in done.stderr
        one_sentence(done.stderr)
