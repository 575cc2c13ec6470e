"""The page: it asks for nothing, runs nothing but its own script, and no name can become part of it."""

import base64
import dataclasses
import hashlib
import io
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from blindsight.accounting.events import NonPrivate
from blindsight.accounting.guarantee import certify
from blindsight.inspection.contrast.limits import SHOWN, Limit
from blindsight.inspection.finding import Diagnosis
from blindsight.inspection.sections import columns
from blindsight.inspection.sections.detection import Detection
from blindsight.inspection.sections.samples import chosen
from blindsight.samples import gallery
from blindsight.samples.views import ArmView

HOSTILE = [
    "</title></style></script><script>alert(1)</script>",
    '" onerror="alert(1)" x="',
    "' onmouseover='alert(1)",
    "<img src=https://example.com/x.png>",
    "$title ${script} $$",
    "&lt;b&gt; &amp; \u202e ]]> <!-- -->",
]


class Page(HTMLParser):
    """All tags in order, all attributes, and the text of the page."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.words: list[str] = []
        self.inside: dict[str, list[str]] = {"style": [], "script": [], "title": []}
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        self.tags.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        last = self.tags[-1] if self.tags else ""
        self.inside.get(last, self.words).append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def values(self, tag: str, name: str) -> list[str]:
        return [value for one, attribute, value in self.attributes if (one, attribute) == (tag, name)]


@pytest.fixture(scope="module")
def page(report) -> Page:
    return Page(report.to_html())


@pytest.fixture(scope="module")
def harmless(make_hostile) -> Page:
    return Page(make_hostile("harmless").to_html())


@pytest.mark.parametrize("text", HOSTILE)
def test_no_name_becomes_a_tag_or_an_attribute(make_hostile, harmless, text):
    hostile = Page(make_hostile(text).to_html())
    assert hostile.tags == harmless.tags
    assert [pair[:2] for pair in hostile.attributes] == [pair[:2] for pair in harmless.attributes]
    assert hostile.inside["title"][0] == text  # drawings have titles too
    assert hostile.text.count(" ".join(text.split())) >= 15


@pytest.mark.parametrize("text", HOSTILE[:4])
def test_a_name_that_is_not_escaped_would_be_noticed(text):
    frames = ("<p>{}</p>", '<p title="{}">', "<p title='{}'>")
    pages = [(Page(frame.format("harmless")), Page(frame.format(text))) for frame in frames]
    assert any(a.tags != b.tags or len(a.attributes) != len(b.attributes) for a, b in pages)


@pytest.mark.parametrize("which", ["usual", "hostile"])
def test_nothing_is_asked_of_anyone(report, make_hostile, which):
    one = Page((report if which == "usual" else make_hostile(HOSTILE[3])).to_html())
    addresses = [
        value
        for _, name, value in one.attributes
        if name in ("src", "href", "srcset", "action", "data", "poster", "formaction", "background", "srcdoc")
    ]
    assert len(addresses) > 80
    assert all(address.startswith(("data:", "#")) for address in addresses)
    assert "url(" not in "".join(one.inside["style"])
    assert "@import" not in "".join(one.inside["style"])
    assert not {"iframe", "object", "embed", "base", "video", "audio"} & set(one.tags)


def test_the_policy_admits_only_the_page_s_own_style_and_script(page):
    (policy,) = (value for value in page.values("meta", "content") if "default-src" in value)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data:"
    for kind in ("style", "script"):
        (text,) = page.inside[kind]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules[f"{kind}-src"] == f"'sha256-{digest}'"
    assert "unsafe" not in policy
    assert page.tags.index("meta") < page.tags.index("style")


def test_there_are_no_inline_styles_or_handlers_which_the_policy_would_block(page):
    assert [pair for pair in page.attributes if pair[1] == "style" or pair[1].startswith("on")] == []
    assert page.tags.count("script") == page.tags.count("style") == 1


def test_every_picture_of_samples_says_that_it_is_synthetic(page):
    strips = {width: gallery._strip(width) for width in (112, 84)}
    pictures = [value for value in page.values("img", "src") if "image/png" in value]
    stamped = 0
    for source in pictures:
        with Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2]))) as image:
            pixels = np.asarray(image)
        if pixels.shape[0] == 10:  # the legend
            continue
        strip = pixels[-gallery.STRIP :]
        expected = strips[pixels.shape[1]]
        assert np.array_equal(strip if strip.ndim == 2 else strip[..., 0], expected)
        stamped += 1
    assert stamped == 2 * 40 + 3 * 11


def test_pictures_have_words_and_controls_have_labels(page):
    alts = page.values("img", "alt")
    assert len(alts) == page.tags.count("img")
    assert all(alts)
    assert "synthetic sample 0 of healthy, class 0" in alts
    assert "signed difference failing minus healthy, class 9" in alts
    assert page.tags.count("label") == page.tags.count("select") + page.tags.count("input") == 6
    assert page.tags.count("main") == page.tags.count("h1") == 1
    assert page.values("html", "lang") == ["en"]


@pytest.mark.parametrize(("names", "told"), [(["cat"], " · 1 class"), (["cat", "dog"], " · 2 classes"), ([], "")])
def test_one_class_is_not_several(make_report, names, told):
    about = {"name": "pets", "clients": 7, "classes": names}
    (shown,) = re.findall(r'<p class="about">(.*)</p>', make_report(population=about).to_html())
    assert shown == "pets · 7 clients" + told


def test_the_page_tells_everything(report, page):
    for told in (
        report.question,
        report.verdict.replace(" %", "\xa0%"),
        "epsilon ≤ 2.255",
        "delta 1e-06",
        "unit per client",
        "neighbours add or remove one",
        *report.guarantee.assumptions,
        "49 % of clients (95 %: 46–52)",
        "smallest detectable, 90\xa0% power",
        "2.1 % of clients",
        "+0.53 (+0.49 to +0.57)",
        "● detected p < 0.0001",
        "○ not detected p = 0.8",
        "81 % (74–88)",
        "−0.6 %",
        "mean features",
        "20,480",
        "handwriting · 3,400 clients · 10 classes",
        *report.notes,
        "Nobody looked at a client's data.",
        "The guarantee at the top covers all of them together.",
    ):
        assert " ".join(told.replace("`", " ").split()) in page.text, told
    assert page.text.index("Pictures of failing") < page.text.index("Equally sharp.")


def test_a_report_without_a_guarantee_is_marked(make_report):
    page = Page(make_report(guarantee=certify(NonPrivate(), delta=1e-6)).to_html())
    assert "epsilon = inf: no privacy guarantee" in page.text
    assert "privacy none" in page.values("aside", "class")
    assert "nothing protects the clients" in page.text
    assert "Nobody looked" not in page.text
    assert "covers all of them" not in page.text


def test_tiles_know_how_contrasting_they_are(report):
    source = report.to_html()
    tiles = re.findall(r'<li data-index="(\d+)" data-rank="(\d+)" data-class="(\d+)">', source)
    first, second = tiles[:40], tiles[40:]
    assert first == second  # one order for all arms
    rank = {int(index): int(place) for index, place, _ in first}
    contrast = gallery.contrast([arm.samples for arm in report.arms])
    assert sorted(rank, key=lambda index: rank[index]) == np.argsort(-contrast, kind="stable").tolist()
    assert [int(label) for _, _, label in first] == report.arms[0].labels.tolist()


def test_of_many_samples_every_class_shows_as_many(make_report):
    labels = np.repeat(np.arange(3), [500, 100, 400])
    shown = chosen(labels, 1000)
    assert np.bincount(labels[shown]).tolist() == [40, 40, 40]
    assert chosen(None, 1000).tolist() == list(range(120))
    assert chosen(labels[:50], 50).tolist() == list(range(50))
    pictures = np.zeros((1000, 4, 4), np.uint8)
    page = Page(make_report(arms=(ArmView("all", samples=pictures, labels=labels),)).to_html())
    assert "120 of 1,000 are shown" in page.text


@pytest.mark.parametrize("shape", [(3, 8, 8), (3, 8, 8, 1), (3, 8, 8, 3), (3, 8, 8, 4), (3, 40, 200)])
@pytest.mark.parametrize("labels", [None, [0, 1, 1]])
def test_pictures_of_every_shape_are_shown(make_report, shape, labels):
    stacks = np.random.default_rng(2).integers(0, 256, (2, *shape), dtype=np.uint8)
    arms = tuple(
        ArmView(name, samples=stack, labels=None if labels is None else np.array(labels))
        for name, stack in zip("ab", stacks, strict=True)
    )
    page = Page(make_report(arms=arms, population={}).to_html())
    assert page.tags.count("img") == 6 + 3 * (1 if labels is None else 3) + 1


def test_means_are_shown_where_there_are_no_samples(make_report):
    arms = (ArmView("a", mean=np.zeros((4, 4))), ArmView("b", mean=np.ones((4, 4))))
    alts = Page(make_report(arms=arms).to_html()).values("img", "alt")
    assert alts[:2] == ["mean synthetic image of a, all classes", "mean synthetic image of b, all classes"]
    assert "signed difference b minus a, all classes" in alts


def test_columns_are_compared_the_most_contrasting_first(make_report):
    rng = np.random.default_rng(3)
    words = np.array([" ".join("word" for _ in range(1 + number % 30)) + str(number) for number in range(200)])
    rows = {"equal": np.arange(200) % 2, "age": rng.normal(40, 10, 200), "kind": np.array(["a", "b"] * 100)}
    other = rows | {"age": rows["age"] * 2.2, "kind": np.array(["a"] * 200)}
    other["age"][:50] = np.nan
    arms = (ArmView("first", rows=rows | {"text": words}), ArmView("second", rows=other | {"text": words}))
    page = Page(make_report(arms=arms, population={"classes": {"equal": ["even", "odd"]}}).to_html())
    text = page.text[page.text.index("Columns of the samples") :]
    assert text.index("age") < text.index("kind") < text.index("even")
    assert "second: 25 % missing" in text
    assert "length of text, in characters" in text
    assert "synthetic" in page.text[page.text.index("Sample rows") :]


def test_values_have_one_order_and_missing_ones_are_one_row():
    """A set was sorted by frequency alone: ties came in the order of hashes, which differs from process to process, and
    that of a NaN from object to object, where no two are equal."""
    first = {"age": np.array([0.5, np.nan, 2.123456, np.nan])}
    second = {"age": np.array([2.123456, np.nan, 0.5, 0.5])}
    (column,) = columns.compare([(0, "first", first), (1, "second", second)])["columns"]
    rows = [(row.name, [bar.value for bar in row.bars]) for row in column["bars"].rows]
    assert rows == [("0.5", [0.25, 0.5]), ("missing", [0.5, 0.25]), ("2.123", [0.25, 0.25])]


def test_equally_frequent_names_are_in_alphabetical_order():
    names = {"kind": np.array(["pear", "apple", "fig", "date"])}
    (column,) = columns.compare([(0, "only", names)])["columns"]
    assert [row.name for row in column["bars"].rows] == ["apple", "date", "fig", "pear"]


def test_an_empty_report_still_is_a_page(make_report):
    page = Page(make_report(arms=(ArmView("all"),), findings=(), diagnoses=(), releases=(), notes=()).to_html())
    assert "No difference detected." in page.text
    assert not {"findings", "votes", "releases", "notes"} & set(page.values("section", "aria-labelledby"))


def test_an_arm_s_colour_is_the_same_everywhere(make_report):
    first, second = make_report().arms
    source = make_report(arms=(ArmView("no pictures"), first, second)).to_html()
    assert set(re.findall(r'class="key arm-(\d)">failing', source)) == {"2"}


def test_votes_have_their_intervals(make_report, finding):
    usual = {"kind": "votes", "verdict": "not detected"}
    of_arm = finding(name="rotate90", low=0.011, high=0.049, arms=("failing", "failing"), **usual)
    of_another = finding(name="blur", low=0.6, high=0.7, arms=("healthy", "healthy"), **usual)
    text = Page(make_report(findings=(of_arm, of_another)).to_html()).text
    votes = text[text.rindex("Client votes on candidate faults") : text.rindex("Findings")]
    assert "3.0 % (1.1–4.9)" in votes
    assert "−0.6 %" in votes
    assert "60–70" not in votes


def test_findings_of_one_kind_share_a_scale(make_report, finding):
    wide = finding(name="wide", effect=10.0, low=9.0, high=11.0, kind="fidelity")
    source = make_report(findings=(finding(), wide)).to_html()
    dots = [float(x) for x in re.findall(r'class="dot" cx="([\d.]+)"', source)]
    places = [90 + 74 * 0.53 / 0.6, 90 + 74 * 10 / 12]  # axes end at the next round number
    assert sorted(dots) == pytest.approx(sorted(places), abs=0.1)


def test_a_null_result_is_a_verdict_and_three_misses_with_the_rest_folded(make_report, finding):
    chance = {"verdict": "not detected", "effect": 0.01, "low": -0.04, "high": 0.06}
    quiet = [
        finding(name=f"cue {n}", statement=f"quiet {n}", p_value=p, **chance)
        for n, p in enumerate([1, 0.4, 1, 0.2, 0.3])
    ]
    source = make_report(findings=quiet, diagnoses=()).to_html()
    open_part = source[: source.index("2 more tests without a detected difference")]
    assert re.findall(r"quiet \d", re.sub(r' data-finding="[^"]*"', "", open_part)) == ["quiet 3", "quiet 4", "quiet 1"]
    folded = re.findall(r'<details class="folded"><summary>(.*?)</summary>', source)
    assert folded == ["Samples, side by side · Means and differences · Pixel brightness", "What left the clients"]
    assert source.index('<h2 id="findings"') < source.index('<h2 id="samples"')
    loud = make_report(findings=[*quiet, finding()], diagnoses=()).to_html()
    assert '<details class="folded">' not in loud
    assert "Closest to a detection" not in loud


def test_votes_near_zero_are_folded(make_report):
    tally = {"invert": 0.6, "none": 0.2, "blur": 0.07, "crop": 0.06} | {f"fault {n}": 0.01 for n in range(11)}
    said = Diagnosis("invert", 0.6, 0.5, 0.7, "failing", "invert", tally)
    text = Page(make_report(diagnoses=(said,)).to_html()).text
    votes = text[text.rindex("Client votes on candidate faults") : text.rindex("Findings")]
    shown, folded = votes.split("11 near zero")
    assert all(name in shown for name in ("invert", "none", "blur", "crop"))
    assert "fault 3" in folded
    assert "fault 3" not in shown


@pytest.mark.parametrize(
    ("changes", "tone"),
    [
        ({}, "fault"),
        ({"findings": (), "diagnoses": ()}, "unmeasured"),
        ({"smallest": None}, "unmeasured"),
        ({"smallest": 0.1}, "nothing"),
    ],
)
def test_nothing_that_was_not_measured_is_green(make_report, finding, changes, tone):
    if "smallest" in changes:
        quiet = finding(verdict="not detected", p_value=0.7, low=-0.1, **changes)
        changes = {"findings": (quiet,), "diagnoses": ()}
    assert f'<section class="verdict {tone}"' in make_report(**changes).to_html()


@pytest.mark.parametrize(("smallest", "tone"), [((0.1, 0.4), "nothing"), ((0.1, None), "unmeasured"), ((), "nothing")])
def test_a_fault_that_would_be_missed_on_all_clients_is_not_green(make_report, finding, smallest, tone):
    quiet = finding(verdict="not detected", p_value=0.7, low=-0.1, smallest=0.1)
    limits = tuple(Limit(f"fault {n}", share, (0.5,) * len(SHOWN)) for n, share in enumerate(smallest))
    report = make_report(findings=(quiet,), diagnoses=(), sections=(Detection(limits, 150),))
    assert f'<section class="verdict {tone}"' in report.to_html()


def test_an_answer_that_is_no_verdict_is_not_green(make_report, finding):
    quiet = finding(verdict="not detected", p_value=0.7, low=-0.1, smallest=0.1)
    page = make_report(findings=(quiet,), diagnoses=(), answer="100 examples to label.").to_html()
    assert '<section class="verdict unmeasured"' in page


def test_sections_are_listed_at_the_top_and_led_to(report):
    source = report.to_html()
    headings = re.findall(r'<h2 id="([\w-]+)">', source[source.index("<main>") : source.index("</main>")])
    assert re.findall(r'<li><a href="#([\w-]+)">', source) == headings
    assert len(headings) == len(set(headings)) > 5


def test_findings_say_the_same_number_everywhere(make_report, finding):
    one = finding(kind="share", effect=0.0312, low=0.011, high=0.0514, statement="More (95 %: +1.1 to +5.1 points).")
    text = Page(make_report(findings=(one,)).to_html()).text
    assert "+3.1 points (+1.1 to +5.1)" in text


def test_the_reader_of_the_frame_is_told_when_it_was_made(report):
    assert "Created 2026-01-31T12:00:00+00:00." in Page(report.to_html()).text
    assert dataclasses.replace(report, created="today").to_html() != report.to_html()
