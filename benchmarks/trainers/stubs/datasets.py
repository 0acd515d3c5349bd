"""Stands in for Hugging Face datasets: a few rows of made-up text under whatever name is asked for.

A dataset is a list of rows; what the trainers use of the real one is here and nothing more.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

WORDS = [
    "a",
    "model",
    "is",
    "sharded",
    "and",
    "each",
    "rank",
    "keeps",
    "one",
    "part",
    "of",
    "every",
    "weight",
]
ROWS = 48

logging = SimpleNamespace(disable_progress_bar=lambda: None, set_verbosity_error=lambda: None)


class Dataset:
    """Rows of equal keys."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    @property
    def column_names(self) -> list[str]:
        """Keys of the rows."""
        return list(self.rows[0])

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.rows), len(self.column_names)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def select(self, indices: list[int]) -> Dataset:
        """Some of the rows; those beyond the end are left out."""
        return Dataset([self.rows[i] for i in indices if i < len(self.rows)])

    def shuffle(self, seed: int = 0) -> Dataset:
        """The rows in another order."""
        rows = list(self.rows)
        random.Random(seed).shuffle(rows)
        return Dataset(rows)

    def map(
        self,
        function: Callable[[Any], Any],
        batched: bool = False,
        remove_columns: list[str] | None = None,
        **_: Any,
    ) -> Dataset:
        """What the function makes of every row, or of all rows at once."""
        if not batched:
            return Dataset([function(dict(row)) for row in self.rows])
        columns = {name: [row[name] for row in self.rows] for name in self.column_names}
        made = {**columns, **function(columns)}
        for name in remove_columns or []:
            made.pop(name, None)
        size = min(len(values) for values in function(columns).values())
        made = {name: values for name, values in made.items() if len(values) == size}
        return Dataset([{name: values[i] for name, values in made.items()} for i in range(size)])


class DatasetDict(dict[str, Dataset]):
    """Splits by name."""

    def map(self, *arguments: Any, **keywords: Any) -> DatasetDict:
        """Every split mapped."""
        return DatasetDict({name: split.map(*arguments, **keywords) for name, split in self.items()})


def load_dataset(*name: Any, split: str | None = None, **_: Any) -> Any:
    """A split, or all of them."""
    splits = DatasetDict({each: _rows(each) for each in ("train", "validation", "test")})
    return splits if split is None else splits[split]


def _rows(split: str) -> Dataset:
    source = random.Random(split)

    def text(words: int) -> str:
        return " ".join(source.choice(WORDS) for _ in range(words))

    rows = []
    for _ in range(ROWS):
        question = f"\n\nHuman: {text(4)}\n\nAssistant:"
        rows.append(
            {
                "text": text(12),
                "headline": text(5),
                "chosen": f"{question} {text(6)}",
                "rejected": f"{question} {text(6)}",
            }
        )
    return Dataset(rows)
