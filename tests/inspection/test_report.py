"""The report: what it concludes, what it refuses, and that nothing is lost on the way to JSON and back."""

import dataclasses
import html
import io
import json
import math
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from blindsight import data
from blindsight.accounting.events import Gaussian, NonPrivate
from blindsight.accounting.guarantee import certify
from blindsight.errors import BlindsightError, InvalidInput, PrivacyError
from blindsight.inspection.asking.section import NamedEstimate, Slice, Statistic, Statistics
from blindsight.inspection.bias.section import BiasSection, Compared, ImageGroup
from blindsight.inspection.contrast.explained import Explanation
from blindsight.inspection.contrast.limits import Limit
from blindsight.inspection.finding import Diagnosis, Finding
from blindsight.inspection.report import Report
from blindsight.inspection.sections import registry
from blindsight.inspection.sections.detection import Detection
from blindsight.inspection.sections.explanation import ExplanationSection
from blindsight.inspection.sections.remarks import NextSteps, Notes
from blindsight.inspection.unknowns.section import Rate
from blindsight.samples.views import ArmView

PICTURES = np.zeros((4, 6, 6), np.uint8)
TEMPLATES = Path(str(files("blindsight.pages"))) / "templates"


# What it concludes.


def test_a_named_fault_is_the_verdict_whatever_else_differs(report):
    assert report.outcome == "fault"
    assert report.verdict == "invert, 81 % of failing clients (95 %: 74-88)"
    assert any("'invert'" in step for step in report.next_steps)


def test_the_largest_of_several_faults_is_the_verdict(make_report):
    small = Diagnosis("blur", 0.2, 0.1, 0.3, "healthy", "blur, few", {"blur": 0.2})
    large = Diagnosis("invert", 0.6, 0.5, 0.7, "failing", "invert, many", {"invert": 0.6})
    none = Diagnosis("none", 0.9, 0.8, 1.0, "others", "none", {"none": 0.9})
    report = make_report(diagnoses=(small, none, large))
    assert report.verdict == "invert, many"
    assert "'invert'" in report.next_steps[0]


def test_where_few_voted_the_clearest_difference_stands_beside_the_fault(make_report, finding):
    few = Diagnosis("gamma", 0.04, 0.03, 0.05, "everyone", "gamma, few.", {"gamma": 0.04})
    votes = finding(kind="votes", statement="votes", effect=0.9, low=0.89, high=0.91)
    blur = finding(statement="blur is higher.", effect=0.2, low=0.19, high=0.21)
    report = make_report(findings=(votes, blur), diagnoses=(few,))
    assert report.verdict == "gamma, few. The clearest difference: blur is higher."
    assert make_report(findings=(votes,), diagnoses=(few,)).verdict == "gamma, few."
    many = dataclasses.replace(few, share=0.5)
    assert make_report(findings=(votes, blur), diagnoses=(many,)).verdict == "gamma, few."


def test_without_a_fault_the_clearest_finding_is_the_verdict(make_report, finding):
    faint = finding(statement="faint", effect=0.9, low=0.1, high=1.7)
    clear = finding(statement="clear", effect=0.2, low=0.19, high=0.21)
    loud_but_not_found = finding(statement="no", effect=5.0, low=4.9, high=5.1, verdict="not detected")
    none = Diagnosis("none", 0.9, 0.8, 1.0, "failing", "none", {"none": 0.9})
    report = make_report(findings=(loud_but_not_found, faint, clear), diagnoses=(none,))
    assert (report.outcome, report.verdict) == ("difference", "clear")
    assert [one.statement for one in report.ranked] == ["clear", "faint", "no"]


@pytest.mark.parametrize("kind", ["threshold", "fidelity"])
def test_what_was_merely_measured_is_no_difference(make_report, finding, kind):
    report = make_report(findings=(finding(kind=kind, smallest=None),), diagnoses=())
    assert (report.outcome, report.verdict) == ("nothing", "No difference detected.")
    clear = finding(statement="clear", effect=0.2, low=0.1, high=0.3)
    assert make_report(findings=(finding(kind=kind), clear), diagnoses=()).verdict == "clear"


def test_where_nothing_is_found_the_verdict_says_what_could_not_be_seen(make_report, finding):
    quiet = [finding(verdict="not detected", smallest=smallest) for smallest in (0.2, 0.05, None, math.inf)]
    report = make_report(findings=quiet, diagnoses=())
    assert report.outcome == "nothing"
    assert "must affect 5 % to 20 % of clients" in report.verdict
    assert make_report(findings=(), diagnoses=()).verdict == "No difference detected."
    lost = make_report(findings=(finding(verdict="not detected", smallest=None),), diagnoses=())
    assert lost.verdict.endswith("none could be: an arm has too few clients at this epsilon.")


def test_asking_again_has_a_price(report):
    assert "another epsilon 2.255" in report.next_steps[-1]


# What it refuses.


@dataclasses.dataclass(frozen=True)
class Marked(Finding):
    simulation_only: bool = True


def marked_finding(finding: Finding) -> Finding:
    fields: dict[str, Any] = dataclasses.asdict(finding)
    return Marked(**fields)


@pytest.mark.parametrize(
    "change",
    [
        {"population": data.embedded("handwriting", clients=2).describe().to_dict()},
        {"population": {"name": "people", "clients": 2, "about": {"simulation_only": {"accuracy": 0.9}}}},
        {"releases": ({"what": "cues", "simulation_only": {"true share": 0.5}},)},
        {"releases": ({"what": "cues", "more": [{"deep": ("simulation_only",)}]},)},
        {"notes": ("accuracy 0.93 (simulation_only)",)},
        {"arms": (ArmView("all", rows={"simulation_only distance": np.zeros(2)}),)},
        {"arms": (ArmView("simulation_only"),)},
        {"diagnoses": (Diagnosis("invert", 0.8, 0.7, 0.9, "all", "invert", {"simulation_only": 0.5}),)},
        {"title": "simulation_only"},
    ],
)
def test_what_was_read_off_data_without_noise_is_refused(make_report, change):
    with pytest.raises(PrivacyError, match="simulation_only") as refusal:
        make_report(**change)
    assert refusal.value.exit_code == 3


def test_a_finding_that_is_marked_is_refused_by_its_mark_alone(make_report, finding):
    with pytest.raises(PrivacyError, match="findings, 0 is marked simulation_only"):
        make_report(findings=(marked_finding(finding()),))


def test_a_mark_does_not_hide_in_an_iterator(make_report, finding):
    with pytest.raises(PrivacyError, match="simulation_only"):
        make_report(findings=(one for one in [marked_finding(finding())]))
    with pytest.raises(PrivacyError, match="simulation_only"):
        make_report(sections=(one for one in [Notes(("simulation_only",))]))


def test_a_marked_report_does_not_come_back_from_json(report):
    value = report.to_dict()
    value["notes"] = ["simulation_only"]
    with pytest.raises(PrivacyError, match="simulation_only"):
        Report.from_dict(value)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"samples": PICTURES.astype(np.float32)}, "uint8"),
        ({"samples": PICTURES[0]}, "uint8 of shape"),
        ({"samples": np.zeros((4, 6, 6, 2), np.uint8)}, "1, 3 or 4"),
        ({"samples": PICTURES[:0]}, "uint8 of shape"),
        ({"samples": PICTURES, "labels": np.arange(3)}, "different lengths"),
        ({"samples": PICTURES, "labels": np.zeros(4)}, "whole numbers"),
        ({"rows": {"a": [1, 2], "b": [1]}}, "different lengths"),
        ({"rows": {"a": np.zeros((2, 2))}}, "one per row"),
        ({"rows": {"a": np.zeros(2, "datetime64[s]")}}, "one per row"),
        ({"mean": np.full((6, 6), 255.0)}, "divide bytes by 255"),
        ({"mean": np.full((6, 6), np.nan)}, "divide bytes by 255"),
    ],
)
def test_an_arm_that_cannot_be_shown_is_refused(fields: dict[str, Any], sentence: str):
    with pytest.raises(InvalidInput, match=sentence):
        ArmView("all", **fields)


@pytest.mark.parametrize(
    ("arms", "sentence"),
    [
        ((), "at least one arm"),
        ((ArmView("a"), ArmView("a")), "distinct names"),
        ((ArmView("a", samples=PICTURES), ArmView("b", samples=PICTURES[:3])), "draw the same number"),
        (
            (
                ArmView("a", samples=PICTURES, labels=np.arange(4)),
                ArmView("b", samples=PICTURES, labels=np.zeros(4, np.int64)),
            ),
            "same labels",
        ),
        ((ArmView("a", samples=PICTURES, labels=np.arange(4)), ArmView("b", samples=PICTURES)), "same labels"),
    ],
)
def test_arms_that_do_not_belong_side_by_side_are_refused(make_report, arms, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        make_report(arms=arms)


def test_what_json_does_not_know_is_refused(make_report):
    with pytest.raises(InvalidInput, match="not set"):
        make_report(releases=({"what": {1, 2}},))


# Sections.


def test_a_report_is_the_same_from_sections_as_from_their_parts(report):
    about = {name: getattr(report, name) for name in ("title", "task", "question", "guarantee", "population")}
    again = Report(**about, sections=report.sections[::-1], created=report.created)
    assert again.to_dict() == report.to_dict()
    assert again.to_html() == report.to_html()
    assert str(again) == str(report)


def test_a_part_replaces_its_section_and_leaves_the_others(report):
    changed = dataclasses.replace(report, notes=("Another.",))
    assert changed.notes == ("Another.",)
    assert changed.to_dict() == report.to_dict() | {"notes": ["Another."]}
    assert [type(one) for one in changed.sections] == [type(one) for one in report.sections]


def test_a_section_is_taken_out_by_none(make_report):
    empty = BiasSection("public", 3, ())
    with_bias = make_report(bias=empty)
    assert with_bias.bias is empty
    assert dataclasses.replace(with_bias, bias=None).bias is None
    assert "Serving versus training" in with_bias.to_html()


def test_sections_that_would_be_lost_are_refused(make_report):
    with pytest.raises(TypeError, match="no section finding"):
        make_report(finding=())
    with pytest.raises(TypeError, match="no section next_steps"):
        make_report(sections=(NextSteps(("Wait.",)),))
    with pytest.raises(InvalidInput, match="one section of each type"):
        make_report(sections=(Notes(("one",)), Notes(("two",))))


def test_every_type_of_section_is_shown_on_the_page_and_kept_in_json(make_report):
    for section_type in registry.SECTIONS:
        assert (TEMPLATES / section_type.template).is_file(), section_type
    asked = Statistics(
        (Statistic("mean", "age", "", "number", (Slice("", (NamedEstimate("mean", 40.0, 38.0, 42.0),)),)),)
    )
    explanation = ExplanationSection(
        (Explanation("invert", 0.2, 0.1, 0.3, 4.0, 0.5), Explanation("flip", 0, 0, 1, 9.0))
    )
    limits = (Limit("invert", 0.02, (1.0,) * 5), Limit("gamma", None, (0.0, 0.0, 0.1, 0.2, 0.3)))
    detection = Detection(limits, 150, ("age",))
    report = make_report(
        bias=BiasSection("public", 3, ()), statistics=asked, explanation=explanation, detection=detection
    )
    assert [one.key for one in report.sections] == [one.key for one in registry.SECTIONS if one.key != "unknowns"]
    again = Report.from_dict(report.to_dict())
    assert (again.explanation, again.detection) == (explanation, Detection(limits[::-1], 150, ("age",)))
    assert "age has no public range" in report.to_html()
    assert "invert, 20 % of clients (95 %: 10–30)." in report.verdict
    assert {one.key for one in report.sections} < set(report.to_dict())


# JSON and back.


def test_a_report_of_before_sections_is_read(report):
    """What format 1 held when parts were fields: null for what was not asked, and no next steps."""
    value = report.to_dict() | {"unknowns": None, "bias": None, "statistics": None}
    del value["next_steps"], value["ledger"], value["answer"]
    again = Report.from_dict(json.loads(json.dumps(value)))
    assert again.to_dict() == report.to_dict()


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return a == b


def all_kinds(make_report) -> dict[str, Report]:
    rng = np.random.default_rng(5)
    rows = {
        "whole": np.arange(5, dtype=np.int16),
        "real": np.array([0.1, math.nan, math.inf, -math.inf, 1e-300]),
        "short": rng.normal(size=5).astype(np.float32),
        "truth": np.array([True, False, True, True, False]),
        "text": np.array(["a", "", "äöü \0 end", "</script>", "x" * 100], dtype=np.dtypes.StringDType()),
    }
    colour = rng.integers(0, 256, (3, 5, 7, 3), dtype=np.uint8)
    return {
        "usual": make_report(),
        "rows": make_report(arms=(ArmView("a", rows=rows), ArmView("b", rows=rows))),
        "colour": make_report(arms=(ArmView("a", samples=colour),)),
        "one channel": make_report(arms=(ArmView("a", samples=colour[..., :1], labels=np.arange(3, dtype=np.int8)),)),
        "given mean": make_report(arms=(ArmView("a", mean=rng.random((4, 4)).astype(np.float32)),)),
        "no guarantee": make_report(guarantee=certify(NonPrivate(), delta=1e-6)),
        "bracket": make_report(guarantee=dataclasses.replace(certify(Gaussian(1.0), delta=1e-6), lower=1.25)),
        "numpy numbers": make_report(releases=({"what": "x", "epsilon": np.float32(0.1), "coordinates": np.int64(3)},)),
    }


KINDS = ["usual", "rows", "colour", "one channel", "given mean", "no guarantee", "bracket", "numpy numbers"]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_in_json(make_report, kind):
    before = all_kinds(make_report)[kind]
    after = Report.from_dict(json.loads(json.dumps(before.to_dict(), allow_nan=False)))
    assert after.to_dict() == before.to_dict()
    for field in dataclasses.fields(Report):
        if field.name != "sections":
            assert getattr(after, field.name) == getattr(before, field.name), field.name
    for name in ("findings", "diagnoses", "releases", "notes", "unknowns", "bias", "statistics"):
        assert getattr(after, name) == getattr(before, name), name
    for old, new in zip(before.arms, after.arms, strict=True):
        for field in dataclasses.fields(ArmView):
            if field.name != "rows":
                assert same(getattr(old, field.name), getattr(new, field.name)), field.name
        for name, column in (old.rows or {}).items():
            assert new.rows is not None
            if column.dtype.kind == "T":
                assert new.rows[name].tolist() == column.tolist()
                assert new.rows[name].dtype == column.dtype
            else:
                assert same(column, new.rows[name]), name


def test_text_of_any_kind_is_kept_as_text():
    arm = ArmView("a", rows={"fixed": np.array(["a", "bc"]), "objects": np.array(["a", 7], dtype=object)})
    assert arm.rows is not None
    assert [column.tolist() for column in arm.rows.values()] == [["a", "bc"], ["a", "7"]]


def test_the_json_states_the_verdict(report, tmp_path):
    value = json.loads(report.save_json(tmp_path / "new" / "report.json").read_text())
    assert value["verdict"] == report.verdict
    assert value["outcome"] == value["tone"] == "fault"
    assert value["guarantee"]["epsilon"] == report.guarantee.epsilon
    assert len(value["arms"][0]["samples"]["png"]) == 40


@pytest.mark.parametrize(
    "damage",
    [
        {"format": 2},
        {"arms": None},
        {"arms": [{}]},
        {"findings": [{"kind": "cue"}]},
        {"guarantee": {"epsilon": 1}},
    ],
)
def test_damaged_json_is_refused_in_one_sentence(report, damage):
    with pytest.raises(InvalidInput, match=r"newer version|not the JSON of a report"):
        Report.from_dict({**report.to_dict(), **damage})


@pytest.mark.parametrize("part", ["arms", "findings", "diagnoses", "releases", "notes", "guarantee", "population"])
def test_a_report_that_lost_a_part_is_refused(report, part):
    """Without its findings it would say that nothing was detected."""
    value = report.to_dict()
    for damaged in ({**value, part: None}, {name: item for name, item in value.items() if name != part}):
        with pytest.raises(InvalidInput, match="not the JSON of a report"):
            Report.from_dict(damaged)


@pytest.mark.parametrize(("picture", "sentence"), [("%%%", "not valid base64"), ("AAAA", "not a valid PNG")])
def test_a_damaged_picture_is_refused(report, picture, sentence):
    value = report.to_dict()
    value["arms"][0]["samples"]["png"][0] = picture
    with pytest.raises(InvalidInput, match=sentence):
        Report.from_dict(value)


def test_a_file_that_cannot_be_written_is_one_sentence(report, tmp_path):
    for save in (report.save, report.save_json):
        with pytest.raises(BlindsightError, match="choose another"):
            save(tmp_path)


# Terminal and notebook.


def printed(report: Report, *, width: int = 140, **options: Any) -> str:
    console = Console(file=io.StringIO(), width=width, **options)
    console.print(report)
    return console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


def test_the_terminal_shows_verdict_findings_votes_and_guarantee(report):
    text = printed(report, color_system=None)
    for words in (report.title, report.question, report.verdict, str(report.guarantee), *report.notes):
        assert words in text
    assert text.index("Pictures of failing clients") < text.index("Equally sharp.")
    assert "invert 81 %, none 12 %" in text
    assert "2.1 % of clients" in text
    assert "▀" not in text


def test_str_is_what_the_terminal_shows_and_repr_is_short(report):
    assert report.verdict in str(report)
    assert str(report.guarantee)[:60] in str(report)
    assert "\x1b" not in str(report)
    assert repr(report) == f"<Report {report.title!r}: {report.verdict}>"


def test_a_terminal_with_colour_shows_the_means(report):
    text = printed(report, color_system="truecolor", force_terminal=True)
    assert text.count("▀") == 14 * (3 * 28 + 2 * 2)
    assert "synthetic means" in text


def test_many_quiet_findings_are_counted_not_listed(make_report, finding):
    quiet = [finding(verdict="not detected", statement=f"quiet {number}") for number in range(9)]
    text = printed(make_report(findings=quiet, diagnoses=()), color_system=None)
    assert text.count("quiet") == 3
    assert "and 6 more not detected" in text


def test_markup_in_names_is_printed_as_it_is(make_hostile):
    plain: dict[str, Any] = {"color_system": None}
    for colour in (plain, {"color_system": "standard", "force_terminal": True, "highlight": False}):
        harmless, markup = (printed(make_hostile(text), width=600, **colour) for text in ("harmless", "[b]x[/b]"))
        assert markup.count("[b]x[/b]") == harmless.count("harmless") >= 10


def test_a_report_without_a_guarantee_says_so(make_report):
    assert "epsilon = inf" in printed(make_report(guarantee=certify(NonPrivate(), delta=1e-6)), color_system=None)


def test_a_notebook_gets_the_page_in_a_frame_of_its_own(make_hostile):
    report = make_hostile('"></iframe><script>alert(1)</script>')
    frame = report._repr_html_()
    assert frame.count("<") == 2  # the frame opens and closes, and nothing else does
    source = re.search(r'srcdoc="([^"]*)"', frame)
    assert source is not None
    assert html.unescape(source[1]) == report.to_html()
    assert 'sandbox="allow-scripts allow-downloads"' in frame


def test_a_report_is_read_and_written_without_jax():
    code = "import sys; from blindsight.inspection import report; "
    code += "from blindsight.samples import as_json, export, gallery; "
    code += "assert not {'jax', 'jaxlib'} & set(sys.modules)"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_a_report_written_before_names_changed_is_read_as_the_same_report(make_report):
    rate = Rate(0.1, 0.0, 0.2)
    subjects = ("style", "group", "region of images", "age")
    compared = tuple(Compared(subject, "much slant", rate, rate, "more") for subject in subjects)
    samples = np.zeros((1, 2, 2), np.uint8)
    report = make_report(bias=BiasSection("public", 3, compared, (ImageGroup(compared[1], 2.0, samples),)))
    older = {"style": "habit", "group": "kind", "region of images": "region of pictures"}

    def before(one: dict[str, Any]) -> dict[str, Any]:
        rest = {name: value for name, value in one.items() if name != "subject"}
        return rest | {"about": older.get(one["subject"], one["subject"])}

    value = json.loads(json.dumps(report.to_dict()))
    for finding in value["findings"]:
        finding["verdict"] = {"detected": "found", "not detected": "not found"}[finding["verdict"]]
    value["bias"]["compared"] = [before(one) for one in value["bias"]["compared"]]
    value["bias"]["kinds"] = [one | {"compared": before(one["compared"])} for one in value["bias"].pop("groups")]
    assert {one["verdict"] for one in value["findings"]} == {"found", "not found"}
    assert Report.from_dict(value).to_dict() == report.to_dict()


def test_a_field_with_the_old_name_of_a_subject_keeps_its_name(make_report):
    rate = Rate(0.1, 0.0, 0.2)
    report = make_report(bias=BiasSection("public", 3, (Compared("habit", "daily", rate, rate, "more"),)))
    again = Report.from_dict(json.loads(json.dumps(report.to_dict())))
    assert again.bias is not None
    assert again.bias.compared[0].subject == "habit"
