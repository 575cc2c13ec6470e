"""`tabular`: census-like rows of districts, from a causal model.

The district affects education, education affects occupation, these affect hours of work, and all affect income, with
interactions that a linear model misses. Districts belong to regions and differ in size, age, schooling and wages. All
people are fictitious.
"""

import functools
from typing import NamedTuple

import numpy as np

from blindsight.data.dice import Dice
from blindsight.data.embedded.sizes import Range, least_and_most, skewed_sizes
from blindsight.data.generated import GeneratedPopulation
from blindsight.data.population import Columns, as_text, ranges

__all__ = ["tabular"]

EDUCATION = ("none", "primary", "secondary", "vocational", "bachelor", "master", "doctorate")
OCCUPATION = ("farming", "crafts", "service", "sales", "clerical", "technical", "management", "care")
HOUSEHOLD = ("single", "couple", "separated", "widowed")
SEX = ("female", "male")
INCOME = ("up to 50k", "over 50k")
REGION = ("coast", "hills", "lakes", "plain", "capital", "harbour", "border", "islands")

URBAN = np.array([0.1, -0.6, -0.2, -0.8, 1.5, 0.9, -0.3, -1.0])  # of each region
SCHOOLING = np.array([0.0, 1.0, 2.0, 2.5, 3.6, 4.3, 5.0])  # value of each education
WORK_NEEDS = np.array([-1.2, -0.4, -0.9, -0.1, 0.3, 0.9, 1.2, 0.4])  # schooling that each occupation requires
WORK_USUAL = np.array([-1.0, 0.2, 0.6, 0.3, 0.2, 0.0, -0.2, 0.1])
WORK_URBAN = np.array([-1.4, -0.3, 0.4, 0.4, 0.5, 0.6, 0.5, 0.0])
WORK_WOMEN = np.array([-0.3, -0.9, 0.3, 0.2, 0.6, -0.5, -0.2, 0.9])
WORK_HOURS = np.array([5.0, 2.0, -4.0, 0.0, -2.0, 1.0, 6.0, -3.0])
WORK_PAY = np.array([-0.9, 0.0, -0.8, 0.1, 0.0, 0.7, 1.1, -0.1])


def tabular(clients: int = 200, *, seed: int = 0, examples: Range = (20, 500)) -> GeneratedPopulation:
    """Districts and their people: age, sex, education, occupation and more, and `label`, income up to or over 50k.

    Numbers are integers; `education`, `occupation`, `household`, `sex`, `region` and `label` are codes with class
    names. `examples` are the minimum and maximum number of people per district. Synthetic.
    """
    span = least_and_most(examples)
    dice = Dice(seed, "tabular")
    everyone = np.arange(clients)
    return GeneratedPopulation(
        functools.partial(_draw, dice, span),
        sizes=skewed_sizes(dice, span, everyone),
        ids=np.strings.add("district-", as_text(everyone)),
        name="tabular",
        recipe=("tabular", dice.seed, span),
        classes={
            "sex": SEX,
            "education": EDUCATION,
            "occupation": OCCUPATION,
            "household": HOUSEHOLD,
            "region": REGION,
            "label": INCOME,
        },
        synthetic=True,
    )


def _draw(dice: Dice, examples: Range, clients: np.ndarray) -> Columns:
    """The people of these clients. Every throw depends only on the client and the number of the person."""
    sizes = skewed_sizes(dice, examples, clients)
    throw = _Throws(dice, np.repeat(clients, sizes), ranges(np.zeros_like(sizes), sizes))

    region = dice.below(len(REGION), "region", throw.client)
    urban = URBAN[region] + 0.5 * throw.district("urban")
    age = 41 + 3 * throw.district("age") - 2 * urban + 14 * throw.bell("age") + 5 * np.maximum(0, throw.bell("old"))
    age = np.clip(age, 17, 90)
    male = throw.uniform("sex") < 0.5
    gift = throw.bell("gift")

    learnt = 2.4 + 0.3 * urban + 0.3 * throw.district("schooling") + 0.9 * gift - 0.012 * (age - 40)
    too_soon = np.maximum(0, SCHOOLING - 0.3 * (age[:, None] - 13))  # nobody is a doctor at 20
    education = throw.choose("education", -0.6 * np.square(learnt[:, None] - SCHOOLING) - 4 * too_soon)
    schooling = SCHOOLING[education]

    work = 0.6 * WORK_NEEDS * (schooling[:, None] - 2.4) + 0.6 * WORK_URBAN * urban[:, None]
    work += WORK_WOMEN * np.where(male, -1, 1)[:, None]
    work += 0.4 * dice.bell("industry", throw.client[:, None], np.arange(len(OCCUPATION)))
    occupation = throw.choose("occupation", WORK_USUAL + work)

    single, couple, apart, widowed = (
        2.5 - 0.05 * age,
        0.9 - 0.0009 * (age - 45) ** 2,
        0.02 * age - 1.6,
        0.085 * (age - 78),
    )
    household = throw.choose("household", np.stack([single, couple, apart, widowed], axis=1))
    hours, pay = _work(throw, age, male, household == 1, schooling, occupation)
    pay += 0.3 * gift + 0.2 * urban + 0.3 * urban * (schooling > 3) + 0.3 * throw.district("wages")
    savings = np.exp(6.5 + 0.02 * age + 0.5 * pay + 1.1 * throw.bell("savings")) * (throw.uniform("saves") < 0.35)
    earns = pay - 1.75 + 0.8 * throw.bell("luck") + 0.06 * np.log1p(savings)

    columns = {"age": age, "sex": male, "education": education, "occupation": occupation, "household": household}
    columns |= {"hours": hours, "savings": np.minimum(savings, 999_999), "region": region, "label": earns > 0}
    return {field: column.astype(np.int32) for field, column in columns.items()}


def _work(
    throw: "_Throws", age: np.ndarray, male: np.ndarray, couple: np.ndarray, schooling: np.ndarray, work: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Weekly hours, and pay on an arbitrary scale."""
    retired = np.maximum(0, age - 63)
    hours = 39 + WORK_HOURS[work] + 6 * throw.bell("hours") - 1.8 * retired - 1.2 * np.maximum(0, 22 - age)
    hours = np.clip(hours - 5 * (couple & ~male), 0, 90)
    pay = 0.6 * WORK_PAY[work] + 0.2 * (schooling - 2)
    pay += 0.4 * (schooling - 2) * np.isin(work, (5, 6, 7))  # schooling pays where it is required,
    pay += 0.03 * (hours - 38) * np.where(work == 6, 2, 0.7)  # long hours pay off for managers,
    pay += 0.025 * np.clip(age - 25, 0, 30) * (0.5 + 0.3 * (schooling - 2))  # and experience for the educated
    pay += np.where(male, 0.2, -0.2) * np.where(couple, 1.8, 0.2) + 0.4 * couple - 0.05 * retired
    return hours, pay


class _Throws(NamedTuple):
    """Throws per person, and per district."""

    dice: Dice
    client: np.ndarray
    person: np.ndarray

    def uniform(self, name: str) -> np.ndarray:
        return self.dice.uniform(name, self.client, self.person)

    def bell(self, name: str) -> np.ndarray:
        return self.dice.bell(name, self.client, self.person)

    def district(self, name: str) -> np.ndarray:
        return self.dice.bell(f"district {name}", self.client)

    def choose(self, name: str, liking: np.ndarray) -> np.ndarray:
        """One alternative per row, with probability proportional to the exponential of its liking."""
        ceiling = np.cumsum(np.exp(liking), axis=1)
        return (self.uniform(name)[:, None] * ceiling[:, -1:] >= ceiling[:, :-1]).sum(axis=1)
