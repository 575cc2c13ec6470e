"""A report as an inspection would make it: handwriting in place of samples, inverted for most of one arm."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from blindsight import data
from blindsight.accounting.events import Gaussian
from blindsight.accounting.guarantee import certify
from blindsight.inspection.asking.section import NamedEstimate, Slice, Statistic, Statistics
from blindsight.inspection.bias.section import BiasSection, Compared, ImageGroup, Word
from blindsight.inspection.finding import Diagnosis, Finding
from blindsight.inspection.report import Report
from blindsight.inspection.unknowns.section import Generated, Rate, Side, UnknownsSection, WordList
from blindsight.samples.views import ArmView


@pytest.fixture(scope="session")
def handwriting() -> tuple[np.ndarray, np.ndarray]:
    """Four pictures of each digit, in the order of the digits."""
    columns = data.embedded("handwriting", clients=8).columns
    chosen = np.concatenate([np.flatnonzero(columns["label"] == digit)[:4] for digit in range(10)])
    return columns["image"][chosen], columns["label"][chosen]


@pytest.fixture(scope="session")
def finding() -> Callable[..., Finding]:
    """A finding, with some of its fields changed."""

    def make(**changes: Any) -> Finding:
        fields: dict[str, Any] = {
            "kind": "cue",
            "name": "intensity mean",
            "statement": "Pictures of failing clients are brighter by 0.53 of the full range.",
            "effect": 0.53,
            "low": 0.49,
            "high": 0.57,
            "p_value": 1e-9,
            "verdict": "detected",
            "epsilon": 0.71,
            "smallest": 0.021,
            "arms": ("healthy", "failing"),
        }
        return Finding(**fields | changes)

    return make


@pytest.fixture(scope="session")
def make_report(handwriting, finding) -> Callable[..., Report]:
    """A report, with some of its fields changed."""
    images, labels = handwriting
    inverted = images.copy()
    inverted[::5] = 255 - inverted[::5]  # four fifths of the failing are inverted
    quiet = {"verdict": "not detected", "p_value": 0.8, "effect": 0.01, "low": -0.04, "high": 0.06, "smallest": 0.11}
    votes = {"invert": 0.81, "none": 0.12, "rotate90": 0.03, "blur": -0.006}
    usual: dict[str, Any] = {
        "title": "Why do corrections jump after the update?",
        "task": "slices",
        "question": "What differs between clients on which the classifier works and those on which it fails?",
        "arms": (
            ArmView("healthy", 0.49, 0.46, 0.52, images, labels),
            ArmView("failing", 0.50, 0.47, 0.53, 255 - inverted, labels),
        ),
        "findings": (finding(name="blur", statement="Equally sharp.", **quiet), finding()),
        "diagnoses": (
            Diagnosis("invert", 0.81, 0.74, 0.88, "failing", "invert, 81 % of failing clients (95 %: 74-88)", votes),
        ),
        "guarantee": certify(Gaussian(2.0), delta=1e-6),
        "releases": (
            {"what": "mean features", "epsilon": 1.52, "noise_std": 12.25, "coordinates": 20480},
            {"what": "cues and votes", "epsilon": 0.71, "noise_std": 4.125, "coordinates": 44},
        ),
        "population": {"name": "handwriting", "clients": 3400, "classes": tuple("0123456789")},
        "notes": ("Each client is in one arm only.",),
        "created": "2026-01-31T12:00:00+00:00",
    }
    return lambda **changes: Report(**usual | changes)


@pytest.fixture(scope="session")
def report(make_report) -> Report:
    return make_report()


@pytest.fixture(scope="session")
def make_hostile(make_report, finding) -> Callable[[str], Report]:
    """A report all of whose names and sentences are the given text."""

    def make(text: str) -> Report:
        usual = make_report()
        names = [f"{text}{number}" for number in range(10)]
        first, second = usual.arms
        rows = {text: np.array([text] * 9 + ["other"]), f"{text} ": np.append(np.arange(9.0), np.nan)}
        rate = Rate(0.1, 0.0, 0.2)
        made = Generated(0.1, (0.1,) * 2, (text,), WordList((text,), (0.1,), (0.0,)), (0.1,))
        sides = [Side(name, rate, (rate,) * 2, (rate,), (rate,), made, ((text, 9.0),)) for name in names[:2]]
        group = ImageGroup(Compared("group", text, rate, rate, "more"), 2.0, first.samples[:1])
        compared = (Compared(text, text, rate, rate, "alike"), group.compared)
        return make_report(
            title=text,
            task=text,
            question=text,
            created=text,
            notes=(text,),
            arms=(
                dataclasses.replace(first, name=names[0]),
                dataclasses.replace(second, name=names[1]),
                ArmView(names[2], rows=rows),
            ),
            findings=(finding(name=text, statement=text, arms=(text, text)),),
            diagnoses=(Diagnosis(text, 0.8, 0.7, 0.9, names[1], text, {text: 0.8, "none": 0.2}),),
            releases=({"what": text, text: text},),
            population={"name": text, "clients": text, "classes": names},
            unknowns=UnknownsSection(9, (text, "later"), (text,), (text,), *sides),
            statistics=Statistics(
                (Statistic("top", text, text, "share", (Slice(text, (NamedEstimate(text, 0.5, 0.4, 0.6),)),), text),)
            ),
            bias=BiasSection(text, 3, compared, (group,), (Word(text, 9.0, 1.0),), (text,)),
            guarantee=dataclasses.replace(usual.guarantee, assumptions=(text,), participation=text, accountant=text),
        )

    return make
