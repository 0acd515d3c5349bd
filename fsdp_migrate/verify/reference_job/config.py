"""What the reference job is run with: sizes, dtypes, strategy, schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Arm: TypeAlias = Literal["fsdp1", "fsdp2", "ddp"]
Size: TypeAlias = Literal["tiny", "small", "medium", "large", "8b"]
DtypeName: TypeAlias = Literal["fp32", "bf16"]
Checkpointing: TypeAlias = Literal["none", "full", "selective"]
Strategy: TypeAlias = Literal["full_shard", "shard_grad_op", "no_shard", "hybrid_shard"]


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Dimensions of the decoder.

    Attributes:
        width: elements of the residual stream.
        heads, kv_heads: query heads, and the key/value heads that they share (heads % kv_heads == 0).
        hidden: elements inside the feed-forward block.
    """

    vocab: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    hidden: int

    @property
    def head_dim(self) -> int:
        return self.width // self.heads


SHAPES: Mapping[Size, ModelShape] = {
    "tiny": ModelShape(vocab=512, width=128, layers=4, heads=4, kv_heads=2, hidden=352),
    "small": ModelShape(vocab=4096, width=384, layers=8, heads=6, kv_heads=2, hidden=1024),
    "medium": ModelShape(vocab=32_000, width=1024, layers=16, heads=16, kv_heads=4, hidden=2816),
    "large": ModelShape(vocab=128_256, width=2048, layers=16, heads=32, kv_heads=8, hidden=8192),
    "8b": ModelShape(vocab=128_256, width=4096, layers=32, heads=32, kv_heads=8, hidden=14_336),
}
"""About 0.9 M, 17 M, 0.24 G, 1.5 G and 8 G parameters (untied)."""


@dataclass(frozen=True, slots=True)
class ReferenceConfig:
    """One run of the reference job; both arms take the same one.

    Attributes:
        dtype: `bf16` computes in bfloat16 and keeps fp32 weights; `fp32` uses no mixed precision.
        reduce_dtype: dtype of gradient reduction under `bf16`. With `fp32` and `accumulate` above 1 the arms
            differ by design: FSDP1 sums unreduced gradients in bfloat16, FSDP2 in `reduce_dtype`.
        accumulate: micro-batches per optimizer step; gradients are reduced with the last.
        clip: largest gradient norm; None does not clip. The arms sum the norm in different orders, so
            that a step which is clipped agrees to about 1e-7 rather than to the last bit.
        tied: the head uses the embedding's weight.
        batch: sequences per rank and micro-batch.
        sequence: tokens per sequence.
        ac: activation checkpointing: `full` computes all of a layer again, `selective` keeps what its matrix
            products and its attention gave.
        compile: compile each layer.
        offload: weights, gradients and the optimizer's state on the CPU between uses.
        float8: matrix products of the layers in float8 (torchao); emulated where there is no GPU for it.
        save: file that the FSDP1 arm writes after its last step; "" writes none.
        old, new: what the FSDP1 arm resumes from, and what the FSDP2 arm; "" starts anew.
    """

    size: Size = "tiny"
    dtype: DtypeName = "fp32"
    reduce_dtype: DtypeName = "fp32"
    strategy: Strategy = "full_shard"
    accumulate: int = 1
    clip: float | None = 1.0
    tied: bool = False
    steps: int = 5
    seed: int = 0
    batch: int = 2
    sequence: int = 64
    learning_rate: float = 1e-3
    ac: Checkpointing = "none"
    compile: bool = False
    offload: bool = False
    float8: bool = False
    save: str = ""
    old: str = ""
    new: str = ""

    @property
    def shape(self) -> ModelShape:
        return SHAPES[self.size]


def hybrid_mesh_shape(world_size: int, local_world_size: int) -> tuple[int, int]:
    """(replicas, ranks per replica) for `hybrid_shard`.

    Replicas are nodes; on a single node, its two halves. One rank per replica is never chosen: FSDP1
    then forgets to average gradients over the replicas (pytorch#154888).

    Args:
        local_world_size: ranks per node.
    """
    if world_size > local_world_size > 1 and world_size % local_world_size == 0:
        return world_size // local_world_size, local_world_size
    if world_size >= 4 and world_size % 2 == 0:
        return 2, world_size // 2
    return 1, world_size
