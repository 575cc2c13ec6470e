"""A private vocabulary: clients' words, counted or discovered at a stated epsilon.

`count_words` asks every client which of a public list of candidates it uses: one release. `discover_words` needs no
list. It grows words byte by byte, as in Zhu et al. 2020, *Federated Heavy Hitters Discovery with Differential Privacy*
(arXiv:1902.08534), but with Gaussian noise on sums in place of sampled votes: each level asks which bytes follow the
surviving prefixes, in one noisy histogram.

**A client sends** a 1 for every cell in which it has a word, clipped to the norm sqrt(most). A client with at most
`most` words counts in full in each of them; one with more counts for less in each, and no client is left out.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from blindsight.accounting.events import Event
from blindsight.accounting.guarantee import Guarantee, certify
from blindsight.accounting.ledger import Ledger, Payers
from blindsight.accounting.planning import solve_noise
from blindsight.backends import Backend, ClientUpdate, Examples, Simulation
from blindsight.data.population import TEXT, Population
from blindsight.data.text import Case, Vocabulary, tokens
from blindsight.errors import InvalidInput
from blindsight.keys import Key
from blindsight.mechanisms import GaussianMechanism, gaussian, publish
from blindsight.mechanisms.gaussian_mechanism import joint
from blindsight.mechanisms.release import marked
from blindsight.participation import full

__all__ = ["WORD_CELLS", "WordCounts", "count_words", "discover_words", "own_words", "release_words"]

END = 256  # follows the last byte of a word
SYMBOLS = 257
_CELLS = 2**17  # maximum of one level of discovery; limits the prefixes, which need a cell per symbol
WORD_CELLS = 17 * _CELLS
"""Maximum number of cells that discovering words of the default length releases, over all levels."""

_MISTAKEN = 0.05  # probability of listing any word that no client uses

MakeBackend = Callable[[Population], Backend]


@dataclasses.dataclass(frozen=True)
class WordCounts:
    """Words and the noisy number of clients that use each, the most used first; `noise_std` is that of the noise."""

    words: tuple[str, ...]
    counts: np.ndarray
    noise_std: float
    guarantee: Guarantee
    event: Event  # of the whole release, for guarantees that include more

    def vocabulary(self, size: int) -> Vocabulary:
        """The vocabulary of the `size` most used words."""
        if not self.words:
            raise InvalidInput(
                f"no word is used by enough clients to stand out from noise of {self.noise_std:.0f}: "
                "use a larger epsilon, or a public list of candidates"
            )
        return Vocabulary(self.words[:size])

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        counts = {word: round(float(count), 1) for word, count in zip(self.words, self.counts, strict=True)}
        return {"clients": counts, "noise_std": self.noise_std, "guarantee": self.guarantee.to_dict()}


def count_words(
    words: Population,
    candidates: Sequence[str],
    *,
    epsilon: float,
    delta: float,
    key: Key,
    ledger: Ledger,
    population: Payers | None = None,
    run: str = "",
    most: int = 100,
    backend: MakeBackend = Simulation,
) -> WordCounts:
    """The noisy number of clients that use each of the public `candidates`.

    **Guarantee**: (epsilon, delta) for each client; the ledger has it before any noise is drawn.

    Args:
        words: What `own_words` returns.
        candidates: Words to count, public.
        epsilon: Epsilon of the guarantee.
        delta: Delta of the guarantee.
        key: Key of the noise.
        ledger: Ledger that records the cost.
        population: Name of the clients in the ledger; that of `words` by default.
        run: Name of the run in the ledger entry.
        most: Number of words for which a client counts in full.
        backend: Makes the backend of the clients.
    """
    listed = list(dict.fromkeys(candidates))
    if not listed:
        raise InvalidInput("give at least one candidate word to count, or discover words without a list")
    paying = (key, ledger, population or words.name, run)
    query = _Query(words, epsilon, delta, *paying, most, levels=1, cells=len(listed), listed=listed)
    place = {word: number for number, word in enumerate(listed)}
    cell = np.array([place.get(word, -1) for word in words.columns["word"].tolist()], np.int32)
    counts = query.release(cell, 0, backend, f"clients who use each of {len(listed):,} words")
    order = np.argsort(-counts, kind="stable")
    return WordCounts(tuple(listed[i] for i in order), counts[order], query.noise_std, query.guarantee, query.event)


def discover_words(
    words: Population,
    *,
    epsilon: float | None = None,
    mechanism: GaussianMechanism | None = None,
    delta: float,
    key: Key,
    ledger: Ledger,
    population: Payers | None = None,
    run: str = "",
    most: int = 20,
    length: int = 16,
    backend: MakeBackend = Simulation,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> WordCounts:
    """Words of at most `length` bytes that many clients use, discovered without a list of candidates.

    In 95 % of runs every listed word is used by some client; words of few clients stay below the noise.

    **Guarantee**: (epsilon, delta) for each client, over all levels; every level is in the ledger before its noise is
    drawn. If no prefix survives to the last level, less is spent.

    Args:
        words: What `own_words` returns.
        epsilon: Epsilon of the guarantee; or give `mechanism`.
        mechanism: Mechanism with one release that costs as much as all levels together; or give `epsilon`.
        delta: Delta of the guarantee.
        key: Key of the noise.
        ledger: Ledger that records the cost.
        population: Name of the clients in the ledger; that of `words` by default.
        run: Name of the run in the ledger entries.
        most: Number of words for which a client counts in full.
        length: Maximum number of bytes of a word.
        backend: Makes the backend of the clients.
        progress: Called with the levels done and their total.
    """
    if not 1 <= length <= 64:
        raise InvalidInput(f"length must be between 1 and 64 bytes, got {length}")
    if (epsilon is None) == (mechanism is None):
        raise InvalidInput("discovering words needs either epsilon or mechanism: give one of the two")
    paying = (key, ledger, population or words.name, run)
    query = _Query(words, epsilon, delta, *paying, most, length + 1, cells=_CELLS, whole=mechanism)
    guarantee, event = query.guarantee, query.event  # for the maximum number of cells at every level
    room = min(_CELLS // SYMBOLS, 1 + int(words.size * most / (2 * query.noise_std)))  # no more can exceed the noise
    symbols = _symbols(words.columns["word"], length)
    place = np.where(
        symbols[:, 0] == END, -1, 0
    )  # index of each word's prefix among the survivors; empty words are excluded
    prefixes, discovered = [b""], list[tuple[float, bytes]]()
    for level in range(query.levels):
        progress(level, query.levels)
        symbol = symbols[:, level]
        cell = np.where((place >= 0) & (symbol >= 0), place * SYMBOLS + symbol, -1).astype(np.int32)
        query.cells = SYMBOLS * min(
            2 ** (len(prefixes) - 1).bit_length(), room
        )  # rounded up, so that few shapes are compiled
        counts = query.release(cell, level, backend, f"byte {level + 1} of words, {len(prefixes):,} prefixes")
        counts = counts[: len(prefixes) * SYMBOLS].reshape(-1, SYMBOLS)
        listed = query.noise_std * stats.norm.isf(_MISTAKEN / (counts.size * query.levels))
        discovered += [(counts[i, END], prefixes[i]) for i in np.flatnonzero(counts[:, END] >= listed)]
        place, prefixes = _survivors(counts[:, :END], query.noise_std, room, place, symbol, prefixes)
        if not prefixes:
            break
    discovered.sort(key=lambda one: (-one[0], one[1]))
    texts = tuple(word.decode("utf-8", "replace") for _, word in discovered)
    return WordCounts(texts, np.array([count for count, _ in discovered]), query.noise_std, guarantee, event)


def release_words(
    clients: Population,
    *,
    candidates: Sequence[str] | None = None,
    field: str = "text",
    case: Case = "lower",
    epsilon: float,
    delta: float,
    key: Key,
    ledger: Ledger,
    population: Payers | None = None,
    run: str = "",
    most: int | None = None,
) -> WordCounts:
    """The most used words of a text field: counted among `candidates` if given, otherwise discovered.

    **Guarantee**: (epsilon, delta) for each client, as in `count_words` and `discover_words`.

    Args:
        clients: Clients and their texts.
        candidates: Public list of words to count; without it words are discovered.
        field: Field holding the text.
        case: "lower" ignores case; "keep" distinguishes words by it.
        epsilon: Epsilon of the guarantee.
        delta: Delta of the guarantee.
        key: Key of the noise.
        ledger: Ledger that records the cost.
        population: Name of the clients in the ledger; that of `clients` by default.
        run: Name of the run in the ledger entries.
        most: Number of words for which a client counts in full (default 100 for candidates, 20 to discover).
    """
    words = own_words(clients, field=field, case=case)
    options: Any = {
        "epsilon": epsilon,
        "delta": delta,
        "key": key,
        "ledger": ledger,
        "population": population,
        "run": run,
    }
    if most is not None:
        options["most"] = most
    return discover_words(words, **options) if candidates is None else count_words(words, candidates, **options)


def own_words(
    population: Population, *, field: str = "text", case: Case = "lower", known: Vocabulary | None = None
) -> Population:
    """Each client's distinct words, one per example, in the column `word`, without words of the vocabulary `known`."""
    if field not in population.fields:
        raise InvalidInput(f"{population.name} has no text {field!r}: it has {', '.join(population.fields)}")
    skipped = frozenset(known.words) if known is not None else frozenset[str]()
    texts, words, sizes = population.columns[field].tolist(), list[str](), np.zeros(population.size, np.int64)
    for client, (start, end) in enumerate(zip(population.offsets[:-1], population.offsets[1:], strict=True)):
        own = dict.fromkeys(token for text in texts[start:end] for token in tokens(text, case=case))
        kept = [word for word in own if word not in skipped]
        words += kept
        sizes[client] = len(kept)
    options: Any = {"ids": population.ids, "name": population.name, "synthetic": population.synthetic}
    return Population({"word": np.array(words, dtype=TEXT)}, sizes=sizes, **options)


@dataclasses.dataclass
class _Query:
    """The releases of one query: each of the `levels` has the same noise, and all together cost (epsilon, delta)."""

    words: Population
    epsilon: float | None
    delta: float
    key: Key
    ledger: Ledger
    population: Payers
    run: str
    most: int
    levels: int
    cells: int
    listed: Sequence[str] = ()
    whole: GaussianMechanism | None = None  # with the noise of one release of everything

    def __post_init__(self) -> None:
        if not self.most >= 1:
            raise InvalidInput(f"most, the words a client counts for in full, must be at least 1, got {self.most}")
        self.bound = math.sqrt(self.most)
        settings = (self.listed, self.epsilon, self.whole, self.delta, self.most, self.levels)
        self.key = self.key.bound_to(lambda: ["words", self.words.fingerprint, *settings])

    @functools.cached_property
    def mechanism(self) -> GaussianMechanism:
        """The noise of every level: together they cost as much as one release with the noise multiplier `alone`."""
        if self.whole is not None:
            return self._level(self.whole.noise_multiplier)
        epsilon = self.epsilon or 0.0
        alone = solve_noise(lambda noise: self._whole(self._level(noise)), epsilon=epsilon, delta=self.delta)
        return self._level(alone)

    def _level(self, alone: float) -> GaussianMechanism:
        return gaussian(alone * math.sqrt(self.levels))

    def _whole(self, level: GaussianMechanism) -> Event:
        return joint(*[level.planned_event] * self.levels)

    @property
    def noise_std(self) -> float:
        """Standard deviation of the number of clients in one cell."""
        return self.mechanism.noise_multiplier * self.bound

    @property
    def event(self) -> Event:
        """The event of all levels together."""
        return marked(self._whole(self.mechanism), self.key)

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of all levels together."""
        levels = f"full: all {self.words.size:,}, in {self.levels} levels" if self.levels > 1 else None
        return certify(self.event, delta=self.delta, participation=levels or f"full: all {self.words.size:,}")

    def release(self, cell: np.ndarray, level: int, backend: MakeBackend, note: str) -> np.ndarray:
        """The noisy number of clients with a word in each cell; words in cell -1 are ignored."""
        participation = full(self.words.size)
        cohort = backend(self.words.replace({"cell": cell})).cohort(
            participation.draw(), n_expected=participation.n_expected, key=self.key.derive("clients", level)
        )
        grid = self.mechanism.grid(self.bound)
        total = cohort.sum(_cells_of(self.cells), jnp.zeros(()), l2_bound=self.bound, grid=grid)
        payment: Any = {"ledger": self.ledger, "population": self.population, "participation": participation}
        key = self.key.derive("noise", level)
        release = publish(self.mechanism, total, key=key, run=self.run, note=note, **payment)
        return np.asarray(release.value, np.float64) * total.n_expected


@functools.lru_cache(maxsize=8)
def _cells_of(cells: int) -> ClientUpdate:
    """The client's half: a 1 in every cell in which it has at least one word."""

    def client_update(broadcast: Any, examples: Examples, key: jax.Array) -> jax.Array:
        del broadcast, key
        batch = examples.whole()
        cell = batch["cell"]
        somewhere = (cell >= 0) & (batch.weight > 0)
        return jnp.zeros(cells, jnp.float32).at[jnp.where(somewhere, cell, cells)].set(1.0, mode="drop")

    return client_update


def _survivors(
    counts: np.ndarray, noise_std: float, room: int, place: np.ndarray, symbol: np.ndarray, prefixes: list[bytes]
) -> tuple[np.ndarray, list[bytes]]:
    """Prefixes one byte longer that exceed the noise, and the index of each word's own among them.

    The threshold lets through one prefix in expectation that no client has; it dies when nothing follows it.
    """
    least = noise_std * stats.norm.isf(1 / counts.size)
    order = np.argsort(-counts, axis=None)[:room]
    kept = order[counts.ravel()[order] >= least]
    number = np.full(counts.shape, -1)
    number.ravel()[kept] = np.arange(len(kept))
    goes_on = (place >= 0) & (symbol >= 0) & (symbol < END)
    place = np.where(goes_on, number[np.where(goes_on, place, 0), np.where(goes_on, symbol, 0)], -1)
    return place, [prefixes[cell // END] + bytes([cell % END]) for cell in kept.tolist()]


def _symbols(words: np.ndarray, length: int) -> np.ndarray:
    """The bytes of each word, then END, then -1; all -1 for a word of more than `length` bytes."""
    symbols = np.full((words.size, length + 1), -1, np.int32)
    for row, word in zip(symbols, words.tolist(), strict=True):
        coded = word.encode()
        if len(coded) <= length:
            row[: len(coded)] = list(coded)
            row[len(coded)] = END
    return symbols
