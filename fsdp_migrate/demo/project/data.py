"""Character-level data: a text file, its alphabet, and batches that depend on the step alone."""

from pathlib import Path

import torch


class CharDataset:
    """The text as integers, nine tenths of it for training.

    A batch is a function of (split, step), whatever the number of ranks: every rank draws the same start
    positions and takes its own share. So a run can be resumed anywhere, on any number of ranks.
    """

    def __init__(self, path: str, block_size: int, seed: int) -> None:
        text = (Path(__file__).parent / path).read_text(encoding="utf-8")
        self.alphabet = sorted(set(text))
        index = {char: i for i, char in enumerate(self.alphabet)}
        tokens = torch.tensor([index[char] for char in text], dtype=torch.long)
        cut = len(tokens) * 9 // 10
        self.splits = {"train": tokens[:cut], "val": tokens[cut:]}
        self.block_size = block_size
        self.seed = seed

    @property
    def vocab_size(self) -> int:
        return len(self.alphabet)

    def batch(
        self, split: str, step: int, size: int, rank: int, world_size: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs and targets of shape (size // world_size, block_size): this rank's share."""
        if size % world_size != 0:
            raise ValueError(f"{size} sequences cannot be shared evenly by {world_size} ranks")
        tokens = self.splits[split]
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
        starts = torch.randint(len(tokens) - self.block_size - 1, (size,), generator=generator)
        mine = starts.chunk(world_size)[rank].tolist()
        inputs = torch.stack([tokens[i : i + self.block_size] for i in mine])
        targets = torch.stack([tokens[i + 1 : i + 1 + self.block_size] for i in mine])
        return inputs, targets
