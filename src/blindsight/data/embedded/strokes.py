"""Pen paths of letters and digits, drawn by hand for this project, not taken from a font.

A path is a list of points "x,y" in hundredths of the height of a capital, y upward from the baseline. The pen runs
smoothly through them; "!" marks a sharp turn, "|" lifts the pen. Most characters have several ways of writing, the most
common first.
"""

import functools
import itertools
from typing import NamedTuple

import numpy as np

__all__ = ["CHARACTERS", "POINTS", "WAYS", "Templates", "templates"]

WAYS: dict[str, list[str]] = {
    "0": [
        "38,100 14,84 4,46 14,10 34,0 54,16 62,52 54,88 36,100 27,95",
        "48,94 24,98 5,66 6,28 24,2 46,8 60,40 56,78 40,97 24,90",
        "30,100 6,70 8,20 30,0 52,22 54,72 34,100",
    ],
    "1": ["30,100! 30,0!", "30,100! 30,0!", "12,80! 32,100! 32,0!", "12,80! 32,100! 32,0! | 8,0! 56,0!"],
    "2": [
        "5,78 18,97 42,97 54,76 42,46 22,20 4,2! 62,3!",
        "6,80 25,99 48,92 52,66 36,34 16,8 3,6 10,18 26,12 44,2 66,7",
        "6,84 24,100 48,90 46,64 26,30 6,0! 34,6 60,0",
    ],
    "3": [
        "6,88 26,100 48,90 46,66 22,53! 50,44 56,20 40,1 16,1 2,14",
        "6,98! 54,98! 26,58! 52,46 58,20 40,1 14,2 2,12",
        "8,90 32,99 50,80 28,54! 52,40 46,8 20,0 0,18",
    ],
    "4": [
        "18,100! 6,42! 62,44! | 46,76! 46,0!",
        "64,34! 4,36! 46,100! 46,0!",
        "14,98 8,60 20,44 58,50! | 54,98! 44,0!",
        "10,96! 8,46! 54,46! | 54,100! 52,0!",
    ],
    "5": [
        "14,98! 8,56! 30,62 54,48 54,18 34,0 4,8 | 14,98! 60,98!",
        "58,97! 16,97! 10,56! 36,60 56,40 48,10 22,0 2,10",
        "14,98! 12,60! 44,54 52,22 30,0 2,10 | 12,96! 56,100!",
    ],
    "6": [
        "46,98 22,76 6,40 10,10 32,0 54,14 52,38 32,48 10,30",
        "40,100! 10,34 14,4 42,2 54,22 40,42 18,38 8,20",
        "52,92 30,96 8,60 6,20 30,0 54,16 46,44 20,42 8,24",
    ],
    "7": [
        "4,96! 58,97! 22,0!",
        "4,93! 56,97! 36,52 26,0",
        "6,84! 6,97! 58,97! 22,0!",
        "4,96! 58,96! 24,0! | 16,50! 52,52!",
    ],
    "8": [
        "50,86 30,100 10,84 18,62 44,42 52,18 32,0 8,16 14,40 42,62 52,84 44,96",
        "30,54 10,70 14,94 32,100 50,92 50,70 30,54 6,34 8,8 30,0 54,10 52,36 30,54",
        "54,92 34,99 12,82 24,60 50,34 40,2 14,4 12,32 40,58 60,96",
    ],
    "9": [
        "52,80 32,100 8,84 10,58 34,52 50,72 54,96! 50,40 44,0",
        "52,74 40,98 14,96 6,70 24,52 48,64 54,90! 54,40 40,6 12,2",
        "50,86 26,98 8,74 28,56 50,78! 50,0!",
    ],
    "A": [
        "34,100! 2,0! | 34,100! 66,0! | 14,36! 54,36!",
        "2,0! 34,100! 64,0! | 12,34! 58,38!",
        "4,0 10,60 34,98 58,60 62,0 | 8,42! 60,42!",
    ],
    "B": [
        "8,100! 8,0! | 8,99! 40,98 52,78 36,56 9,52! 46,46 58,24 42,3 8,1!",
        "10,0! 10,98! 42,96 50,74 14,52! 54,42 52,8 6,2",
    ],
    "C": [
        "60,84 40,100 14,86 4,50 14,12 42,0 64,16",
        "56,92 26,96 4,60 12,12 38,0 66,20",
        "58,72 48,98 16,88 4,44 26,2 62,14",
    ],
    "D": ["8,100! 8,0! | 2,99! 42,94 62,54 44,8 2,1!", "10,2! 10,98! 50,90 64,44 36,2 2,2"],
    "E": [
        "58,99! 8,99! 8,1! 60,0! | 8,52! 46,52!",
        "8,100! 8,0! | 8,99! 56,99! | 8,52! 44,52! | 8,1! 58,1!",
        "56,88 30,100 10,80 32,54! 6,30 20,2 60,12",
    ],
    "F": ["8,100! 8,0! | 8,99! 58,99! | 8,54! 44,54!", "60,98! 10,98! 8,0! | 9,52! 46,52!"],
    "G": [
        "60,84 38,100 10,82 4,40 24,2 54,8 60,42! 36,42!",
        "60,86 36,100 8,78 6,26 32,0 58,14 58,44! | 36,44! 70,44!",
        "58,90 30,98 4,58 18,4 50,6 60,44! 34,40 | 59,42! 60,-4!",
    ],
    "H": ["8,100! 8,0! | 62,100! 62,0! | 8,52! 62,52!", "6,100! 10,0! | 60,100! 58,0! | 8,46! 60,54!"],
    "I": ["30,100! 30,0!", "30,100! 30,0! | 8,100! 52,100! | 8,0! 52,0!"],
    "J": ["50,100! 50,28 38,3 18,2 4,22", "50,100! 50,28 38,3 18,2 4,22 | 22,100! 74,100!"],
    "K": ["8,100! 8,0! | 60,98! 8,42! | 22,56! 62,0!", "8,100! 8,0! | 58,100! 12,48! 64,0!"],
    "L": ["8,100! 8,1! 58,0!", "12,100 8,40 10,2! 60,5"],
    "M": [
        "4,0! 10,100! 38,26! 66,100! 74,0!",
        "4,0! 4,100! 40,20! 76,100! 76,0!",
        "2,0 10,80 22,96 36,30! 42,80 60,98 72,60 74,0",
    ],
    "N": ["6,0! 6,100! 60,0! 60,100!", "6,100! 6,0! | 6,98! 60,2! 62,100!"],
    "O": [
        "38,100 8,78 5,32 36,0 66,26 68,72 38,100 28,97",
        "50,97 20,98 4,60 16,8 46,2 70,36 62,84 34,99",
    ],
    "P": ["8,100! 8,0! | 4,98! 44,98 58,76 42,50 9,48!", "8,0! 8,98! 50,94 54,64 34,46 8,50"],
    "Q": [
        "38,100 8,78 5,32 36,2 66,26 68,72 38,100 28,97 | 44,28! 74,-6!",
        "50,97 20,98 4,60 16,8 46,2 70,36 62,84 34,99 | 42,20! 50,24 74,2",
    ],
    "R": ["8,100! 8,0! | 4,98! 46,98 54,74 36,52 9,50! 60,0!", "8,0! 10,96! 50,92 48,58 14,50! 34,30 62,2"],
    "S": ["56,86 34,100 12,84 22,60 46,42 54,18 32,0 2,14", "60,88 30,100 10,74 52,34 40,2 2,6"],
    "T": ["34,100! 34,0! | 2,100! 66,100!", "36,100! 32,0! | 4,96! 68,100!"],
    "U": ["6,100! 6,34 30,0 58,30 60,100!", "6,100 6,34 28,2 56,30 60,100! 62,0!"],
    "V": ["2,100! 32,0! 62,100!", "4,100 14,50 32,2! 46,50 66,100"],
    "W": ["2,100! 20,0! 42,76! 62,0! 82,100!", "2,100 10,20 26,3 42,64! 48,14 66,4 80,50 82,100"],
    "X": ["4,100! 60,0! | 60,100! 2,0!", "6,98 30,56 62,2 | 58,100! 4,0!"],
    "Y": [
        "2,100! 32,50! | 62,100! 22,0!",
        "2,100! 32,52! 62,100! | 32,52! 32,0!",
        "4,100 8,60 32,48 58,62! | 62,100! 54,0!",
    ],
    "Z": ["4,98! 60,98! 4,0! 62,0!", "4,98! 60,98! 4,0! 62,0! | 16,50! 52,50!"],
    "a": [
        "48,48 28,60 7,44 7,12 26,0 46,20 50,56! 48,14 60,2",
        "44,50 22,60 5,36 12,4 32,4 46,34! | 49,58! 49,0!",
        "8,50 28,60 46,46 46,2! | 46,34 20,32 5,14 22,0 46,16",
    ],
    "b": ["8,100! 8,2! | 8,36 30,56 50,38 46,8 24,-1 8,10", "8,100! 8,6! 12,36 38,52 50,24 30,-1 8,8"],
    "c": ["48,48 28,60 7,44 7,14 28,0 50,10", "46,54 18,56 6,26 26,0 52,14"],
    "d": ["46,46 24,58 5,36 12,4 32,2 46,24! | 48,100! 48,0!", "46,42 26,58 5,30 20,0 44,20 50,100! 48,10 58,0"],
    "e": ["7,30! 46,34 40,58 18,57 5,28 20,0 50,10", "8,26! 48,40 34,60 8,44 10,8 34,0 52,14"],
    "f": ["48,88 34,100 22,82 20,0! | 2,56! 44,56!", "50,84 36,102 22,70 20,-20 | 4,50! 46,56!"],
    "g": [
        "46,46 26,60 7,42 14,14 36,16 48,50! 48,-18 28,-40 4,-26",
        "44,52 20,60 6,34 26,16 46,38! 48,56! 40,-30 14,-40 18,-20 60,4",
    ],
    "h": ["8,100! 8,0! | 8,34 28,58 44,44 46,0!", "12,100 8,0! 14,40 36,58 46,34 48,0"],
    "i": ["14,58! 14,0! | 14,80! 17,91!", "12,58 12,14 26,0 | 15,82! 18,92!"],
    "j": ["24,58! 24,-22 10,-38 -8,-26 | 25,80! 28,91!", "24,58! 20,-36! | 25,82! 27,92!"],
    "k": ["8,100! 8,0! | 42,56! 8,22! | 18,32! 46,0!", "8,100! 8,0! | 44,60! 10,28! 48,0!"],
    "l": ["14,100! 14,0!", "14,100! 14,0!", "6,8 26,62 26,98 14,90 13,24 20,1 34,8", "14,100 13,14 26,0 32,4"],
    "m": [
        "6,58! 6,0! | 6,34 20,58 32,46 32,0! | 32,34 48,58 60,46 62,0!",
        "4,52 8,54 8,0! 14,42 28,56 34,0! 42,44 56,56 62,10 68,0",
    ],
    "n": ["6,58! 6,0! | 6,34 28,58 44,44 46,0!", "4,52 8,56 8,0! 16,44 36,58 44,10 54,2"],
    "o": ["28,60 7,46 7,12 28,0 50,16 48,46 28,60 20,56", "38,58 12,54 6,20 28,0 50,22 40,56 26,59"],
    "p": ["8,58! 8,-40! | 8,36 28,60 50,40 44,8 22,0 8,14", "8,58! 8,-40! 8,30 30,60 50,34 30,2 8,12"],
    "q": ["46,48 24,60 7,38 14,4 34,6 46,40! | 48,58! 48,-40!", "46,48 24,60 7,38 14,4 34,6 48,52! 48,-38! 62,-26!"],
    "r": ["8,58! 8,0! | 8,30 22,54 42,52", "8,58! 8,4! 12,36 28,58 44,48"],
    "s": ["44,48 26,60 9,48 20,32 40,20 36,2 4,8", "46,52 20,60 12,42 42,20 30,0 2,6"],
    "t": ["22,92! 22,14 32,0 46,6 | 2,62! 44,62!", "22,92! 22,0! | 2,60! 44,60!"],
    "u": ["6,58 8,16 24,0 42,18 46,58! 46,10 56,0", "6,58! 8,16 26,0 46,18 48,58!"],
    "v": ["4,58! 24,0! 46,58!", "4,58 14,20 24,2! 36,30 50,58"],
    "w": ["2,58! 16,0! 32,46! 46,0! 62,58!", "4,58 8,12 20,2 32,40! 38,6 54,6 62,58"],
    "x": ["4,58! 46,0! | 46,58! 4,0!", "6,58 26,30 50,0 | 46,60! 4,-2!"],
    "y": ["4,58! 26,8! | 48,58! 12,-38!", "6,58 8,24 26,14 44,30 48,58! 46,-20 26,-40 4,-28"],
    "z": ["4,58! 46,58! 4,0! 48,0!", "4,58! 46,58! 4,0! 48,0! | 12,30! 40,30!", "6,56 40,58 6,4! 28,6 50,0"],
}

CHARACTERS = tuple(WAYS)
"""The 62 classes in their usual order: digits, capitals, small letters."""

POINTS = 40
"""Points sampled along each path: at most 1.6 pixels apart in an image."""


class Templates(NamedTuple):
    """Every way of writing, one row each; lengths in heights of a capital."""

    sharp: np.ndarray  # (ways, POINTS, 2) float32, x and y, y upward
    round: np.ndarray  # the same with soft corners
    bends: np.ndarray  # (ways, POINTS, BENDS) float32: directions in which a hand deforms a path
    joined: np.ndarray  # (ways, POINTS - 1) float32: 1 where the pen is down between two points
    first: np.ndarray  # (62,) the first way of each character
    number: np.ndarray  # (62,) how many it has


@functools.cache
def templates() -> Templates:
    """All ways of writing, sampled evenly along their strokes."""
    ways = [way for character in CHARACTERS for way in WAYS[character]]
    sampled = [_sample([_dense(stroke) for stroke in way.split("|")]) for way in ways]
    sharp = np.stack([points for points, _ in sampled])
    stroke = np.stack([number for _, number in sampled])
    count = np.array([len(WAYS[character]) for character in CHARACTERS])
    return Templates(
        sharp=sharp.astype(np.float32),
        round=np.stack([_soften(*way) for way in sampled]).astype(np.float32),
        bends=np.stack([_bends(*way) for way in sampled]).astype(np.float32),
        joined=(stroke[:, 1:] == stroke[:, :-1]).astype(np.float32),
        first=np.cumsum(count) - count,
        number=count,
    )


def _dense(stroke: str) -> np.ndarray:
    """A stroke as a fine polyline: Catmull and Rom's curve between sharp turns."""
    words = stroke.split()
    points = np.array([[float(number) for number in word.strip("!").split(",")] for word in words]) / 100
    turns = sorted({0, len(words) - 1, *(place for place, word in enumerate(words) if word.endswith("!"))})
    pieces: list[np.ndarray] = []
    for start, end in itertools.pairwise(turns):
        piece = points[start : end + 1]
        padded = np.concatenate([[2 * piece[0] - piece[1]], piece, [2 * piece[-1] - piece[-2]]])
        t = np.linspace(0, 1, 30, endpoint=False)[:, None]
        for a, b, c, d in zip(padded, padded[1:], padded[2:], padded[3:], strict=False):
            pieces.append(b + t / 2 * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * b - a - 3 * c + d))))
    return np.concatenate([*pieces, points[-1:]])


def _sample(strokes: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """POINTS points at even distances along all strokes, and the number of the stroke of each."""
    lengths = np.array([np.hypot(*np.diff(stroke, axis=0).T).sum() for stroke in strokes])
    share = np.maximum(3, np.floor(lengths / lengths.sum() * POINTS)).astype(int)
    share[np.argmax(share)] += POINTS - share.sum()
    points: list[np.ndarray] = []
    for stroke, count in zip(strokes, share, strict=True):
        along = np.concatenate([[0], np.cumsum(np.hypot(*np.diff(stroke, axis=0).T))])
        at = np.linspace(0, along[-1], count)
        points.append(np.stack([np.interp(at, along, stroke[:, axis]) for axis in (0, 1)], axis=1))
    return np.concatenate(points), np.repeat(np.arange(len(strokes)), share)


def _soften(points: np.ndarray, stroke: np.ndarray) -> np.ndarray:
    """The path smoothed: each point is the mean of its neighbours on the stroke, with fewer of them at the ends."""
    place = np.arange(len(points))
    start, end = np.searchsorted(stroke, stroke), np.searchsorted(stroke, stroke, side="right") - 1
    reach = np.clip(np.minimum(place - start, end - place) / 1.5, 0.1, 1.8)[:, None]
    near = np.exp(-0.5 * ((place[:, None] - place) / reach) ** 2) * (stroke[:, None] == stroke)
    return near @ points / near.sum(axis=1, keepdims=True)


def _bends(points: np.ndarray, stroke: np.ndarray) -> np.ndarray:
    """Slow waves along the whole path, then a shift of each of the second to fourth strokes.

    The amplitude of waves grows with the length of the path, up to a limit: a short straight line stays nearly
    straight, and small letters bend less than large ones.
    """
    length = np.sum(np.hypot(*np.diff(points, axis=0).T) * (np.diff(stroke) == 0))
    along = np.linspace(0, np.pi, POINTS)
    reach = min(1.0, 0.2 + 0.35 * length) * (0.4 + 0.6 * np.ptp(points[:, 1]))
    waves = [reach * np.cos(number * along) for number in (1, 2, 3, 4, 5)]
    shifts = [0.8 * (stroke == number) for number in (1, 2, 3)]
    return np.stack([*waves, *shifts], axis=1)
