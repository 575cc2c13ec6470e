"""`service_child.py` as the next version of the code would be: its records have one more field.

Those of a model called `breaking` may not be read by this version.
"""

import runpy
import sys
from pathlib import Path
from typing import Any

from blindsight.service import store

if __name__ == "__main__":
    as_now = store.Record.to_json
    store.SCHEMA += 1

    def to_json(record: store.Record, more: dict[str, Any] | None = None) -> str:
        readers = {"readers": store.SCHEMA} if record.model == "breaking" else {}
        return as_now(record, {"colour": record.unknown.get("colour", "blue")} | readers | (more or {}))

    store.Record.to_json = to_json  # pyright: ignore[reportAttributeAccessIssue]
    sys.argv[0] = str(Path(__file__).with_name("service_child.py"))
    runpy.run_path(sys.argv[0], run_name="__main__")
