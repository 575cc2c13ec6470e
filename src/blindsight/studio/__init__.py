"""The studio: pages on this machine about what runs have left behind. No JAX in here.

::

    labels       what people have said about a synthetic set: one line for every decision, on disk before the next
    queue        what one rater has still to label, in an order of their own, and which key stands for which class
    agreeing     how far raters agree, and what the majority says
    annotations  labels from Label Studio and back
    app          the page with the queue, for this machine alone
    run          the page while people label
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blindsight.studio.agreeing import Agreement, agreement, majority
    from blindsight.studio.annotations import export_annotations, import_annotations
    from blindsight.studio.labels import Decision, Labels
    from blindsight.studio.queue import Queue

__all__ = ["Agreement", "Decision", "Labels", "Queue", "agreement", "export_annotations", "import_annotations"]
__all__ += ["majority"]

_HOMES = {
    "Agreement": "agreeing",
    "Decision": "labels",
    "Labels": "labels",
    "Queue": "queue",
    "agreement": "agreeing",
    "export_annotations": "annotations",
    "import_annotations": "annotations",
    "majority": "agreeing",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"blindsight.studio.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'blindsight.studio' has no attribute {name!r}")
