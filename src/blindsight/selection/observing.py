"""What clients compute about their own examples before selection."""

from collections.abc import Sequence

import numpy as np

from blindsight.data.population import TEXT, Population
from blindsight.errors import InvalidInput
from blindsight.models.primary import Primary, gather

__all__ = ["accuracies", "coded", "observe", "with_other"]

_OTHER = "other"


def observe(
    population: Population,
    primary: Primary,
    *,
    inputs: str | Sequence[str] = "image",
    label: str = "label",
    is_public: bool = False,
) -> Population:
    """The population with the primary model's predictions, computed by each client on its own examples.

    Adds the fields `predicted`, `confidence` and, with labels, `is_correct`. They stay on the clients: nothing leaves
    except through a release. The model is checked against the population first, its range against public examples
    only.
    """
    primary.check(population, inputs, label)
    columns = population.columns
    read = gather(columns, inputs)
    if is_public:
        primary.check(population, inputs, label, public=read)
    predicted, confidence = primary.predict_by_client(read, population.sizes)
    derived = {"predicted": predicted, "confidence": confidence}
    if label in columns:
        derived["is_correct"] = predicted == columns[label]
    return population.replace({**columns, **derived})


def accuracies(population: Population) -> np.ndarray:
    """Each client's exact accuracy, 1 if it has no examples: `simulation_only`."""
    if "is_correct" not in population.fields:
        raise InvalidInput(f"accuracies need labels and a primary model: observe {population.name} with both first")
    owner = np.repeat(np.arange(population.size), population.sizes)
    right = np.bincount(owner, population.columns["is_correct"], population.size)
    return np.where(population.sizes > 0, right / np.maximum(population.sizes, 1), 1.0)


def coded(population: Population, field: str, names: Sequence[str]) -> Population:
    """The population with the texts in `field` as numbered classes, so that `where` can select by them.

    `names` must be public, such as a list of versions or countries; a list taken from the data would be a release. All
    other text gets the class "other", or `(other)` if that is one of the names. A field that has these classes already
    stays as it is: where a value is missing or not listed (`data.missing`), `where` selects no example by it.
    """
    if not names or len(set(names)) < len(names):
        raise InvalidInput(f"give at least one value of {field!r}, all different, got {list(names)}")
    if field in population.classes:
        listed = population.classes[field]
        if unlisted := [name for name in names if name not in listed]:
            raise InvalidInput(f"{field!r} is never {unlisted[0]!r}: choose from its values, {', '.join(listed)}")
        return population
    if field not in population.fields or population.fields[field][0] != TEXT:
        texts = [name for name, (dtype, _) in population.fields.items() if dtype == TEXT]
        raise InvalidInput(f"{field!r} of {population.name} is not text: {', '.join(texts) or 'nothing in it is'}")
    column = population.columns[field]
    codes = np.full(len(column), len(names), np.int32)
    for number, name in enumerate(names):
        codes[column == name] = number
    numbered = population.replace({**population.columns, field: codes})
    numbered.classes[field] = with_other(names)
    return numbered


def with_other(names: Sequence[str]) -> tuple[str, ...]:
    """The names, and one more for everything else.

    >>> with_other(["old", "new"]), with_other(["south", "other"])
    (('old', 'new', 'other'), ('south', 'other', '(other)'))
    """
    other = _OTHER
    while other in names:
        other = f"({other})"
    return (*names, other)
