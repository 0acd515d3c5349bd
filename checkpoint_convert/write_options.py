"""How an output should look: format, parts, types, sizes. Light to import: the command line does at once."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from checkpoint_convert.model import DType

CHUNK_BYTES = 32 * 1024 * 1024
"""Largest DCP chunk: a rank reads chunks whole, so small ones save reading and large ones save entries."""

FILE_BYTES, LEAST_FILE_BYTES = 1024 * 1024 * 1024, 64 * 1024 * 1024
"""Where a DCP file ends and the next begins at the latest, and at the earliest: several files let ranks read,
and threads write, in parallel."""

SAFETENSORS_FILE_BYTES = 5_000_000_000
"""Largest safetensors file, as `transformers.PreTrainedModel.save_pretrained` has it."""


MODEL_KEY = "model"
OPTIM_KEY = "optim"
"""Top-level keys of an output, as torchtitan and most loaders have them."""


class OutputFormat(enum.Enum):
    """What is written; the value is what `--to` takes."""

    DCP = "dcp"
    SAFETENSORS = "safetensors"
    TORCH = "torch"


class Preset(enum.Enum):
    """Whose loader a DCP output is for; the value is what `--layout` takes."""

    TORCH = "torch"
    """`dcp.load({"model": ..., "optim": ...})`."""
    TORCHTITAN = "torchtitan"
    """torchtitan's `CheckpointManager`: the model's names at the top, the optimizer's flattened by name."""
    ACCELERATE = "accelerate"
    """`Accelerator.load_state`: two directories, `pytorch_model_fsdp_0` and `optimizer_0`."""
    LIGHTNING = "lightning"
    """Lightning's `ModelParallelStrategy`: one directory, and `meta.pt` for everything else."""

    @property
    def model_key(self) -> str:
        """The top-level key of the model, where the form has one."""
        return "state_dict" if self is Preset.LIGHTNING else MODEL_KEY

    @property
    def optim_key(self) -> str:
        """The top-level key of the optimizer."""
        named = {Preset.TORCH: OPTIM_KEY, Preset.LIGHTNING: "optimizer_0"}
        return named.get(self, "optimizer")


class Part(enum.Enum):
    """What `--only` keeps."""

    MODEL = "model"
    OPTIM = "optim"


class TiedPolicy(enum.Enum):
    """What becomes of names that share a tensor."""

    KEEP = "keep"
    """Every name is in the output; the bytes are written once."""
    FIRST = "first"
    """Only the first name of each group."""
    ERROR = "error"
    """Refuse a model with tied names."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How the output should look.

    Attributes:
        dtype: what floating point model tensors become; None keeps them.
        only: which part to write; None writes all.
        shards: target ranks whose rows lie together (DCP); None lays out for any number.
        tied: None means keep, and first for safetensors, whose readers tie by themselves.
        fill_optim_state: give parameters without optimizer state zeros and step 0.
        link: share the source's DCP files instead of copying their bytes.
        preset: whose loader the output is for (DCP).
        model_key, optim_key: top-level keys under which model and optimizer stand (DCP, torch).
        chunk_bytes, file_bytes: see `CHUNK_BYTES`, `FILE_BYTES`, `SAFETENSORS_FILE_BYTES`.
    """

    to: OutputFormat = OutputFormat.DCP
    dtype: DType | None = None
    only: Part | None = None
    shards: int | None = None
    tied: TiedPolicy | None = None
    fill_optim_state: bool = False
    link: bool = False
    preset: Preset = Preset.TORCH
    model_key: str = MODEL_KEY
    optim_key: str = OPTIM_KEY
    chunk_bytes: int = CHUNK_BYTES
    file_bytes: int | None = None

    @property
    def tied_policy(self) -> TiedPolicy:
        """The policy in force."""
        if self.tied is not None:
            return self.tied
        return TiedPolicy.FIRST if self.to is OutputFormat.SAFETENSORS else TiedPolicy.KEEP
