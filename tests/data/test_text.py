"""Laws of text: no word is lost or doubled, numbers come back as words, nobody keeps more than the limit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blindsight.data import dataset, embedded
from blindsight.data.damage import FAULTS
from blindsight.data.population import TEXT, Population
from blindsight.data.text import (
    END,
    END_OF_WORD,
    PAD,
    START,
    START_OF_WORD,
    UNKNOWN,
    Vocabulary,
    sentences,
    split_sentences,
    tokens,
    unknown_words,
    word_bytes,
    word_tokens,
)
from blindsight.errors import InvalidInput

KNOWN = Vocabulary(("the", "cat", "sat", "."))
NO_BREAK = "\u00a0"


def of_texts(*clients, **fields):
    """A population whose clients have these texts."""
    texts = [text for client in clients for text in client]
    columns = {"text": np.array(texts, dtype=TEXT)} | fields
    return Population(columns, sizes=[len(client) for client in clients], name="people")


@given(st.text(max_size=60))
def test_tokens_keep_every_sign(text):
    assert "".join("".join(tokens(text, case="keep")).split()) == "".join(text.split())
    assert all(token.strip() for token in tokens(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello, World", ["hello", ",", "world"]),
        ("don't it’s e-mail 3rd", ["don't", "it’s", "e-mail", "3rd"]),
        ("see <URL> or <email>, @user!", ["see", "<url>", "or", "<email>", ",", "@user", "!"]),
        ("snake_case :-)", ["snake", "_", "case", ":", "-", ")"]),
        ("Größe Ärger наука हिन्दी 東京", ["größe", "ärger", "наука", "हिन्दी", "東京"]),
        (f"i{NO_BREAK}have two", [f"i{NO_BREAK}have", "two"]),
        (f"end{NO_BREAK} {NO_BREAK}.", ["end", "."]),
        ("", []),
    ],
)
def test_tokens(text, expected):
    assert tokens(text) == expected


def test_case_is_kept_if_asked():
    assert tokens("Hello <URL>", case="keep") == ["Hello", "<URL>"]


def test_a_token_join_fault_with_no_break_space_makes_one_token_of_two():
    broken = FAULTS["token_join"].change(np.array(["i have a cat."], dtype=TEXT), where="first", glue=NO_BREAK)
    assert tokens(broken[0]) == [f"i{NO_BREAK}have", "a", "cat", "."]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! three? Four", ["One.", "Two! three?", "Four"]),
        ("A line\n\nanother", ["A line", "another"]),
        ('He said. "Well." (So)', ["He said.", '"Well."', "(So)"]),
        ("Ende. Über alles. Конец. Да", ["Ende.", "Über alles.", "Конец.", "Да"]),
        ("  ", []),
    ],
)
def test_sentences(text, expected):
    assert sentences(text) == expected


@given(st.lists(st.lists(st.sampled_from(["the", "cat", "dog", "."]), max_size=8), max_size=5), st.integers(1, 6))
def test_encoding_is_start_words_end_pad(texts, length):
    rows = KNOWN.encode(texts, length=length)
    assert rows.shape == (len(texts), length + 1)
    assert rows.dtype == np.int32
    for row, text in zip(rows.tolist(), texts, strict=True):
        whole = [START, *(KNOWN.id(word) for word in text), END] + [PAD] * length
        assert row == whole[: length + 1]
        expected = [word if word in KNOWN else "UNK" for word in text]
        assert KNOWN.decode(row) == expected[:length]


def test_every_word_has_a_number_of_its_own():
    assert [KNOWN.word(KNOWN.id(word)) for word in KNOWN.words] == list(KNOWN.words)
    assert KNOWN.id("dog") == UNKNOWN
    assert KNOWN.word(UNKNOWN) == "UNK"
    assert "dog" not in KNOWN
    assert KNOWN.size == 8
    assert max(KNOWN.id(word) for word in KNOWN.words) == 7


@pytest.mark.parametrize(("words", "says"), [((), "no words"), (("a", ""), "empty word"), (("a", "b", "a"), "twice")])
def test_bad_vocabularies_are_refused(words, says):
    with pytest.raises(InvalidInput, match=says):
        Vocabulary(words)


def test_vocabularies_survive_their_file(tmp_path):
    known = Vocabulary(("größe", f"a{NO_BREAK}b", '"', "<url>"))
    known.save(tmp_path / "vocabulary.json")
    assert Vocabulary.load(tmp_path / "vocabulary.json") == known
    (tmp_path / "words.txt").write_text("the\ncat\nsat\n.\n", encoding="utf-8")
    assert Vocabulary.load(tmp_path / "words.txt") == KNOWN


@pytest.mark.parametrize(
    ("content", "says"),
    [("größe\n".encode("latin-1"), "not UTF-8"), (b"", "no words"), (b'{"other": 1}', "damaged"), (b"a\n\nb", "empty")],
)
def test_bad_vocabulary_files_are_refused_in_one_sentence(tmp_path, content, says):
    (tmp_path / "words.txt").write_bytes(content)
    with pytest.raises(InvalidInput, match=says):
        Vocabulary.load(tmp_path / "words.txt")
    with pytest.raises(InvalidInput, match="cannot read"):
        Vocabulary.load(tmp_path / "none.txt")


def test_the_most_frequent_words_come_first_and_fit():
    texts = ["b a b", "c b a", "d"]
    assert Vocabulary.most_frequent(texts, size=6).words == ("b", "a")
    assert Vocabulary.most_frequent(of_texts(texts[:2], texts[2:])).words == ("b", "a", "c", "d")
    assert Vocabulary.most_frequent(texts, size=6).size == 6
    with pytest.raises(InvalidInput, match="above 4"):
        Vocabulary.most_frequent(texts, size=4)


def test_sentences_become_examples_and_nobody_keeps_more_than_the_limit():
    people = of_texts(["One two. Three four. Five", "Six seven."], [], ["x"], ["A b. C d."], label=np.arange(4))
    split = split_sentences(people, most=2)
    assert split.sizes.tolist() == [2, 0, 0, 2]
    assert split.ids.tolist() == people.ids.tolist()
    assert split.columns["text"].tolist() == ["One two.", "Three four.", "A b.", "C d."]
    assert split.columns["label"].tolist() == [0, 0, 3, 3]
    everything = split_sentences(people, least_words=1)
    assert everything.sizes.tolist() == [4, 0, 1, 2]
    assert everything.columns["label"].tolist() == [0, 0, 0, 1, 2, 3, 3]


def test_word_tokens_of_a_generated_population_are_drawn_on_demand():
    people = embedded("forum", clients=20)
    known = Vocabulary.most_frequent(people, size=100)
    numbered = word_tokens(people, known, length=7)
    one = numbered["author-3"]
    assert one["tokens"].shape == (people.sizes[3], 8)
    assert (one["tokens"] == known.encode(map(tokens, people["author-3"]["text"]), length=7)).all()
    assert one["text"].tolist() == people["author-3"]["text"].tolist()
    assert not numbered._columns  # nobody else was drawn


def test_unknown_words_are_those_without_a_number_and_where_they_stood():
    people = of_texts(["the cat sat .", "a cat Naïvely sat"], [], ["dog dog dog"])
    unknown = unknown_words(people, KNOWN, length=8, most=2)
    assert unknown.sizes.tolist() == [2, 0, 2]
    assert unknown.columns["word"].tolist() == ["a", "naïvely", "dog", "dog"]
    assert unknown.columns["position"].tolist() == [0, 2, 0, 1]
    rows = unknown.columns["tokens"]
    assert rows.shape == (4, 9)
    assert (rows[:, 0] == START_OF_WORD).all()
    assert rows[0].tolist() == [START_OF_WORD, ord("a")] + [END_OF_WORD] * 7
    assert bytes(rows[1, 1:].tolist()).decode() == "naïvely"  # nine bytes with END: cut off before it


def test_populations_may_have_no_unknown_words_at_all():
    assert unknown_words(of_texts(["the cat"]), KNOWN).n_examples == 0
    assert word_bytes([], length=3).shape == (0, 4)


def test_other_fields_are_refused_in_one_sentence():
    people = of_texts(["a"], label=np.arange(1))
    for field, says in (("words", "has text, label"), ("label", "is not text")):
        with pytest.raises(InvalidInput, match=says):
            word_tokens(people, KNOWN, field=field)
        with pytest.raises(InvalidInput, match=says):
            split_sentences(people, field=field)
    with pytest.raises(InvalidInput, match="must be at least 1, got 0"):
        split_sentences(people, most=0)
    with pytest.raises(InvalidInput, match="at least 1 token, got 0"):
        word_tokens(people, KNOWN, length=0)


def test_ten_thousand_words_cover_real_text():
    try:
        people = dataset("stackexchange").select(np.arange(300))
    except InvalidInput:
        pytest.skip("need real data sets: blindsight data get NAME")
    split = split_sentences(people)
    numbered = word_tokens(split, Vocabulary.most_frequent(people), length=20).columns["tokens"]
    words = numbered[numbered > END]
    assert np.mean(words == UNKNOWN) < 0.05
    assert split.sizes.max() <= 200
