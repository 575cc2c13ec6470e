"""Print the part of requirements.lock that the service needs: no JAX, no scikit-learn, a tenth of the size.

python deploy/service/image_requirements.py requirements.lock > service.lock
"""

import re
import sys
from pathlib import Path

NEEDED = (
    *("absl-py", "annotated-doc", "anyio", "attrs", "cffi", "click", "cryptography", "dp-accounting"),
    *("h11", "hiredis", "httpcore2", "httptools", "httpx2", "idna", "lazy-loader", "markdown-it-py"),
    *("mdurl", "mpmath", "numpy", "pycparser", "pygments", "rich", "safetensors", "scipy"),
    *("shellingham", "starlette", "threadpoolctl", "truststore", "typer", "typing-extensions", "uvicorn", "uvloop"),
)


def blocks(lock: str) -> dict[str, list[str]]:
    """The lines of each requirement, by name; some have one version for each version of Python."""
    found: dict[str, list[str]] = {}
    for block in re.findall(r"^[a-z0-9].*(?:\n    .*)*", lock, re.MULTILINE):
        found.setdefault(block.partition("==")[0].partition("[")[0], []).append(block)
    return found


if __name__ == "__main__":
    locked = blocks(Path(sys.argv[1]).read_text(encoding="utf-8"))
    print("\n".join(block for name in NEEDED for block in locked[name]))
