"""Laws of names for data: what is protected is not public, however it is spelled."""

import pytest

from blindsight.data.sources import check_public
from blindsight.errors import PrivacyError


@pytest.mark.parametrize(
    ("name", "options", "protected", "protected_options"),
    [
        ("posts.csv", {}, "posts.csv", {}),
        ("./posts.csv", {}, "posts.csv", {"client": "who"}),
        ("{here}/posts.csv", {}, "folder/../posts.csv", {}),
        ("stackexchange", {}, "stackexchange", {"unit": "sentence"}),
        ("mnist", {"split": "train"}, "mnist", {"split": "train"}),
        ("forum", {}, "forum", {"clients": 50}),
        ("forum", {"seed": 20260}, "forum", {"clients": 50, "seed": 20260}),
        ("digits", {}, "digits", {}),
    ],
)
def test_protected_data_are_not_taken_for_public(tmp_path, monkeypatch, name, options, protected, protected_options):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "posts.csv").touch()
    with pytest.raises(PrivacyError, match=r"--reference = .* are the protected clients"):
        check_public(name.format(here=tmp_path), options, protected, protected_options, what="--reference")


@pytest.mark.parametrize(
    ("name", "options", "protected", "protected_options"),
    [
        ("other.csv", {}, "posts.csv", {}),
        ("forum", {"seed": 1}, "forum", {}),
        ("shakespeare", {}, "stackexchange", {}),
        ("mnist", {"split": "test"}, "mnist", {"split": "train"}),
        ("forum", {}, "posts.csv", {}),
    ],
)
def test_other_data_may_be_public(name, options, protected, protected_options):
    check_public(name, options, protected, protected_options, what="--reference")
