"""The examples that come with Blindsight: runs to train, and notebooks."""

import json
from importlib.resources import files
from pathlib import Path

from blindsight.config import json_schema
from blindsight.errors import InvalidInput
from blindsight.runs import write_whole

__all__ = ["example_files", "write_examples"]

_SCHEMA = "RUN.schema.json"


def example_files() -> dict[str, str]:
    """The text of every example by its path in the folder."""
    packaged = Path(str(files("blindsight"))) / "example_files"
    folder = packaged if packaged.is_dir() else Path(__file__).parents[3] / "examples"  # in a checkout
    shipped = sorted([*folder.glob("*.toml"), *folder.glob("notebooks/*.ipynb")])
    texts = {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in shipped}
    texts = {name: f"#:schema ./{_SCHEMA}\n{text}" if name.endswith(".toml") else text for name, text in texts.items()}
    return texts | {_SCHEMA: json.dumps(json_schema(), indent=2) + "\n"}


def write_examples(folder: Path) -> list[Path]:
    """Write the examples into `folder`; refused if a file there has other contents."""
    texts = {folder / name: text for name, text in example_files().items()}
    for path, text in texts.items():
        if path.exists() and (not path.is_file() or path.read_text(encoding="utf-8") != text):
            raise InvalidInput(f"{path} exists and differs from the example: name another folder, blindsight init DIR")
    return [write_whole(path, text) for path, text in texts.items()]
