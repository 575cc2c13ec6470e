"""The JSON Schemas of RUN.toml and SITE.toml say what the dataclasses say."""

import copy
import dataclasses
import json
import re
import tomllib
import typing
from pathlib import Path
from typing import Any

import pytest
from command import run

from blindsight import config
from blindsight.config import Config, DataSettings, json_schema
from blindsight.errors import InvalidInput
from blindsight.fleet.site.policy import Policy
from blindsight.fleet.site.settings import SiteIdentity, SiteSettings, site_schema

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.toml"))
SCHEMA = json_schema()

BAD = {
    "an unknown key": (("privacy", "epsilom"), 3.0),
    "an unknown table": (("privcy",), {}),
    "text for a number": (("privacy", "delta"), "1e-6"),
    "a number for text": (("name",), 3),
    "a word that is not one of the listed": (("model", "kind"), "transformer"),
    "a fraction for a whole number": (("privacy", "rounds"), 2.5),
    "a list of the wrong type": (("model", "hidden"), ["big"]),
    "a table that is none": (("data",), "digits"),
    "a type that is none": (("data", "types"), {"age": 3}),
}


SITE_PAGE = Path(__file__).parents[1] / "docs" / "site.md"


def validator(schema: dict[str, Any] = SCHEMA) -> Any:
    rules = pytest.importorskip("jsonschema_rs", reason="jsonschema_rs is not installed")
    return rules.validator_for(schema)


def tables(kind: Any, schema: dict[str, Any], place: str = "") -> None:
    """Every field of every dataclass is a property, with the same default and a description unless it is a table."""
    hints = typing.get_type_hints(kind)
    assert list(schema["properties"]) == [field.name for field in dataclasses.fields(kind)], place
    assert schema["additionalProperties"] is False
    for field in dataclasses.fields(kind):
        said = schema["properties"][field.name]
        inner = next(
            (
                part
                for part in (hints[field.name], *typing.get_args(hints[field.name]))
                if dataclasses.is_dataclass(part)
            ),
            None,
        )
        if inner is not None:
            by_name = typing.get_origin(hints[field.name]) is dict
            tables(inner, said["additionalProperties"] if by_name else said, f"{place}{field.name}.")
        elif field.default not in (dataclasses.MISSING, None):
            default = list(field.default) if isinstance(field.default, tuple) else field.default
            assert said["default"] == default, f"{place}{field.name}"


def test_every_key_is_in_the_schema():
    tables(Config, SCHEMA)
    assert SCHEMA["required"] == ["name", "data", "privacy"]
    assert SCHEMA["properties"]["data"]["properties"]["held_out"]["description"].startswith("share of the clients")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_valid(path):
    assert list(validator().iter_errors(tomllib.loads(path.read_text()))) == []


@pytest.mark.parametrize("case", BAD)
def test_what_is_refused_when_read_is_marked_by_an_editor(case):
    (*place, key), value = BAD[case]
    table = copy.deepcopy(tomllib.loads(EXAMPLES[-1].read_text()))
    inner = table
    for name in place:
        inner = inner[name]
    inner[key] = value
    with pytest.raises(InvalidInput):
        config.parse(table)
    assert not validator().is_valid(table)


def test_the_command_prints_it():
    done = run("train", "schema")
    assert json.loads(done.stdout) == json.loads(json.dumps(SCHEMA))


def documented_site() -> dict[str, Any]:
    (block,) = re.findall(r"^```toml\n(.*?)^```", SITE_PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return tomllib.loads(block)


def test_the_schema_of_a_site_has_every_key_of_its_dataclasses():
    schema = site_schema()
    kinds = {"site": SiteIdentity, "data": DataSettings, "policy": Policy}
    assert set(schema["properties"]) == {*kinds, "columns"}
    assert set(schema["required"]) == set(kinds)
    for name, kind in kinds.items():
        tables(kind, schema["properties"][name], f"{name}.")
    assert validator(schema).is_valid(documented_site())


@pytest.mark.parametrize(
    ("place", "key", "value"),
    [
        ("policy", "epsilon_totl", 3.0),
        ("policy", "approve", "never"),
        ("site", "clients", "many"),
        ("columns", "age", 3),
    ],
)
def test_what_a_site_refuses_is_marked_by_an_editor(tmp_path, place, key, value):
    table = documented_site()
    table[place][key] = value
    (tmp_path / "SITE.toml").write_text(toml_of(table), encoding="utf-8")
    with pytest.raises(InvalidInput):
        SiteSettings.read(tmp_path / "SITE.toml")
    assert not validator(site_schema()).is_valid(table)


def toml_of(table: dict[str, Any]) -> str:
    """TOML of tables of plain values; JSON writes these as TOML does, less inline tables."""

    def value(one: Any) -> str:
        if isinstance(one, dict):
            return "{ " + ", ".join(f"{key} = {value(inner)}" for key, inner in one.items()) + " }"
        return json.dumps(one)

    def lines(part: dict[str, Any]) -> str:
        return "".join(f"{key} = {value(one)}\n" for key, one in part.items())

    return "\n".join(f"[{name}]\n{lines(part)}" for name, part in table.items())


def test_the_command_prints_the_schema_of_a_site():
    assert json.loads(run("site", "schema").stdout) == json.loads(json.dumps(site_schema()))
