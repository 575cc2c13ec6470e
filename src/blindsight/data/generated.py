"""`GeneratedPopulation`: clients whose examples are generated when they are read."""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from blindsight.data.kept import kept_or_drawn
from blindsight.data.population import ColumnChange, Columns, Population, check_columns, fingerprint_of
from blindsight.keys import digest_of

__all__ = ["GeneratedPopulation"]

Draw = Callable[[np.ndarray], Columns]
"""Maps client indices to those clients' examples, concatenated in that order."""

_FEW = 100  # clients drawn for a fingerprint


class GeneratedPopulation(Population):
    """A population that generates its examples on demand, the same ones each time.

    `recipe` is everything that `draw` depends on: generator, seed and options. Populations with different recipes count
    as different data. Without a recipe, comparing them means drawing all clients. With `keep`, which needs a recipe,
    many examples stay on disk for the next process (`kept`).
    """

    def __init__(
        self,
        draw: Draw,
        *,
        sizes: Any,
        name: str,
        recipe: Any = None,
        ids: Any = None,
        classes: Mapping[str, tuple[str, ...]] | None = None,
        synthetic: bool = False,
        keep: bool = False,
    ) -> None:
        self.draw = draw
        self._keep = keep and recipe is not None
        super().__init__({}, sizes=sizes, name=name, ids=ids, classes=classes, synthetic=synthetic)
        self._recipe = recipe
        self._numbers = np.arange(self.size)  # indices of these clients in the recipe

    @property
    def columns(self) -> Columns:
        """All examples, drawn once and kept."""
        if not self._columns:
            self._columns = self._kept_or_drawn() if self._keep else self.draw(np.arange(self.size))
            check_columns(self._columns, self.n_examples, self.name)
        return self._columns

    def _kept_or_drawn(self) -> Columns:
        one = sum(dtype.itemsize * math.prod(shape) for dtype, shape in self.fields.values())
        draw = functools.partial(self.draw, np.arange(self.size))
        return kept_or_drawn([self._recipe, self._numbers, self.sizes], one * self.n_examples, draw)

    @property
    def fields(self) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """Dtype and shape of one example in each field, taken from the first client with examples."""
        some = self.draw(np.array([int(np.argmax(self.sizes > 0))]))
        return {field: (column.dtype, column.shape[1:]) for field, column in some.items()}

    def examples(self, clients: np.ndarray) -> Columns:
        """The examples of these clients; no others are drawn, and none again."""
        return super().examples(clients) if self._columns else self.draw(clients)

    @functools.cached_property
    def fingerprint(self) -> str:
        """As for any population; for a large one, of its recipe and of its first clients, to detect changed code."""
        few = self._recipe is None or self.size <= _FEW
        drawn = fingerprint_of(self.ids, self.sizes, self.draw(np.arange(self.size if few else _FEW)))
        return drawn if few else digest_of([drawn, self._recipe, self._numbers])[:16]

    @property
    def content(self) -> str:
        """Empty: generated examples belong to no real person."""
        return ""

    def select(self, clients: Any, *, name: str | None = None) -> "Population":
        """The population of only these clients, still generated on demand."""
        chosen = self._chosen(clients)
        options: dict[str, Any] = {"ids": self.ids[chosen], "classes": self.classes, "synthetic": self.synthetic}
        options |= {"recipe": self._recipe, "keep": self._keep}
        draw = lambda some: self.examples(chosen[some])  # noqa: E731
        selected = GeneratedPopulation(draw, sizes=self.sizes[chosen], name=name or self.name, **options)
        selected._numbers = self._numbers[chosen]
        return selected

    def transform(self, change: ColumnChange, *, name: str, recipe: Any = None) -> "Population":
        """The same clients after `change(clients, columns)`, applied when examples are drawn."""
        options: dict[str, Any] = {"ids": self.ids, "classes": self.classes, "synthetic": self.synthetic}
        if self._recipe is not None and recipe is not None:
            options["recipe"] = (self._recipe, self._numbers, recipe)
        draw = lambda some: change(some, self.examples(some))  # noqa: E731
        return GeneratedPopulation(draw, sizes=self.sizes, name=name, **options)
