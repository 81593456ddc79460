"""Tables whose classes follow a rule without noise: every row can be classified with certainty.

Rows are words, numbers or bits, turned into numbers; a category of k words becomes k columns. All rows of a table are
different. Numbers of rows and of classes are about those of well-known small tables.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import product

import numpy as np
from jaxtyping import Float, Int, Int64
from numpy.typing import NDArray

from gaussify.experiments import _lab as lab

Rows = tuple[Float[np.ndarray, "n d"], Int64[np.ndarray, " n"]]

_LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
_EMPTY, _X, _O = 0, 1, 2


def tic_tac_toe() -> Rows:
    """Return all boards on which a game of tic-tac-toe can end, each square as three columns; class 1 is a win of x.

    Examples
    --------
    >>> X, y = tic_tac_toe()
    >>> X.shape, int(y.sum())
    ((958, 27), 626)
    """
    boards = np.array(sorted(_endings((_EMPTY,) * 9, _X)))
    return one_hot(boards), np.array([_has_won(board, _X) for board in boards], dtype=np.int64)


def _endings(board: tuple[int, ...], player: int) -> set[tuple[int, ...]]:
    """Return the boards on which games end that go on from this board with this player."""
    boards, ended = {board}, set()
    while boards:
        after = {new for board in boards for new in _moves(board, player)}
        over = {board for board in after if _has_won(board, player) or _EMPTY not in board}
        ended |= over
        boards, player = after - over, _X + _O - player
    return ended


def _moves(board: tuple[int, ...], player: int) -> Iterator[tuple[int, ...]]:
    for square, occupant in enumerate(board):
        if occupant == _EMPTY:
            yield (*board[:square], player, *board[square + 1 :])


def _has_won(board: tuple[int, ...] | NDArray, player: int) -> bool:
    return any(all(board[square] == player for square in line) for line in _LINES)


def lexicographic(n_levels: int = 5) -> Rows:
    """Return all rows of four ordered numbers; the class says how the first two compare with the others, as words do.

    Examples
    --------
    >>> X, y = lexicographic()
    >>> X.shape, np.bincount(y)
    ((625, 4), array([300,  25, 300]))
    """
    levels = np.array(list(product(range(n_levels), repeat=4)))
    left, right = (n_levels * pair[:, 0] + pair[:, 1] for pair in (levels[:, :2], levels[:, 2:]))
    return levels.astype(np.float64), np.sign(left - right).astype(np.int64) + 1


def torques(n_levels: int = 5) -> Rows:
    """Return all rows of two weights and their distances from a pivot; the class is the side that goes down, if any.

    Examples
    --------
    >>> X, y = torques()
    >>> X.shape, np.bincount(y)
    ((625, 4), array([288,  49, 288]))
    """
    numbers = np.array(list(product(range(1, n_levels + 1), repeat=4)))
    left, right = numbers[:, :2].prod(1), numbers[:, 2:].prod(1)
    return numbers.astype(np.float64), np.sign(left - right) + 1


def criteria(n: int, random_state: np.random.Generator) -> Rows:
    """Return different random rows of six ordered criteria, as numbers; the worst of the important ones decides.

    Examples
    --------
    >>> X, y = criteria(600, np.random.default_rng(0))
    >>> X.shape, np.unique(y)
    ((600, 6), array([0, 1, 2]))
    """
    levels = (4, 4, 4, 3, 3, 3)
    cells = np.stack(np.unravel_index(random_state.choice(np.prod(levels), n, replace=False), levels), 1)
    price, upkeep, doors, seats, boot, safety = cells.T
    cost, comfort = np.maximum(price, upkeep), np.minimum(doors, 2 * seats) + (boot > 0)
    is_bad = (safety == 0) | (seats == 0) | ((cost == 3) & (comfort < 3))
    is_fair = (cost >= 2) | ((comfort < 2) & (safety == 1))
    return cells.astype(np.float64), np.where(is_bad, 0, np.where(is_fair, 1, 2))


def decision_table(n: int, random_state: np.random.Generator, n_irrelevant: int = 4) -> Rows:
    """Return different random rows of categories, whose class follows from nested conditions on four of them.

    Examples
    --------
    >>> X, y = decision_table(1000, np.random.default_rng(0))
    >>> X.shape, np.unique(y)
    ((1000, 28), array([0, 1, 2]))
    """
    n_words = np.array([4] * 4 + [3] * n_irrelevant)
    numbers = random_state.choice(np.prod(n_words), n, replace=False)
    cells = np.stack(np.unravel_index(numbers, n_words), 1)
    a, b, c, d = cells[:, :4].T
    if_a = np.where(b == 2, 1, np.where(c == 0, 2, 0))
    otherwise = np.where(d < 2, np.where(b == 0, 0, 2), np.where(c == 3, 0, 1))
    return one_hot(cells), np.where(a < 2, if_a, otherwise).astype(np.int64)


def parity(n: int, n_relevant: int, random_state: np.random.Generator, n_bits: int = 12) -> Rows:
    """Return different random rows of bits; the class is the parity of the first few.

    Examples
    --------
    >>> X, y = parity(300, 2, np.random.default_rng(0))
    >>> X.shape, bool((y == X[:, :2].sum(1) % 2).all())
    ((300, 12), True)
    """
    numbers = random_state.choice(2**n_bits, n, replace=False)
    bits = numbers[:, None] >> np.arange(n_bits) & 1
    return bits.astype(np.float64), bits[:, :n_relevant].sum(1) % 2


def one_hot(cells: Int[np.ndarray, "n d"]) -> Float[np.ndarray, "n k"]:
    """Return a column of zeros and ones for each category of each column.

    Examples
    --------
    >>> one_hot(np.array([[0, 1], [1, 1]]))
    array([[1., 0., 1.],
           [0., 1., 1.]])
    """
    return np.column_stack([column[:, None] == np.unique(column) for column in cells.T]).astype(np.float64)


def _drawn(make: Callable[..., Rows], *arguments: int) -> Callable[[], Rows]:
    return lambda: make(*arguments, np.random.default_rng(0))


RULES: dict[str, Callable[[], Rows]] = {
    "tic-tac-toe": tic_tac_toe,
    "lexicographic": lexicographic,
    "torques": torques,
    "criteria": _drawn(criteria, 600),
    "decision table": _drawn(decision_table, 1000),
    "parity of 2": _drawn(parity, 300, 2),
    "parity of 3": _drawn(parity, 1000, 3),
    "parity of 4": _drawn(parity, 1000, 4),
    "few comparisons": partial(lexicographic, 3),
}


@lru_cache(maxsize=1)
def _rows(rule: str) -> Rows:
    return RULES[rule]()


def split_rule(rule: str, number: int) -> lab.Split:
    """Return a random split of the rows of a rule, seven tenths to learn from, with the classes in equal shares.

    Examples
    --------
    >>> split = split_rule("lexicographic", 0)
    >>> len(split.y), len(split.y_test)
    (437, 188)
    """
    from sklearn.model_selection import train_test_split

    X, y = _rows(rule)
    train, test = train_test_split(np.arange(len(y)), train_size=0.7, stratify=y, random_state=number)
    return lab.Split(X[train], y[train], X[test], y[test])
