"""A small Llama-style decoder: RMSNorm, rotary positions, grouped-query attention, SwiGLU.

The rotary tables are computed once by the decoder and handed to every layer as fp32 side inputs: what a
layer sees of them tells whether a sharding wrapper casts inputs at each unit or at the root alone.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fsdp_migrate.verify.reference_job.config import ModelShape

ROTARY_BASE = 10_000.0
INIT_STD = 0.02


def rotary_tables(length: int, head_dim: int) -> tuple[Tensor, Tensor]:
    """cos and sin of the rotary angles: two fp32 tensors of shape (length, head_dim)."""
    frequencies = ROTARY_BASE ** (-torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    angles = torch.outer(torch.arange(length, dtype=torch.float32), frequencies).repeat(1, 2)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply rotary positions to x of shape (batch, heads, length, head_dim), in the tables' dtype."""
    left, right = x.chunk(2, dim=-1)
    return (x * cos + torch.cat((-right, left), dim=-1) * sin).to(x.dtype)


class RMSNorm(nn.Module):
    """Root-mean-square norm, computed in fp32."""

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return normed.to(x.dtype) * self.weight


class Attention(nn.Module):
    """Causal self-attention; `heads // kv_heads` query heads share one key/value head."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = shape.heads, shape.kv_heads, shape.head_dim
        self.query = nn.Linear(shape.width, shape.heads * shape.head_dim, bias=False)
        self.key = nn.Linear(shape.width, shape.kv_heads * shape.head_dim, bias=False)
        self.value = nn.Linear(shape.width, shape.kv_heads * shape.head_dim, bias=False)
        self.out = nn.Linear(shape.heads * shape.head_dim, shape.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, _ = x.shape
        query = self.query(x).view(batch, length, self.heads, self.head_dim).transpose(1, 2)
        key = self.key(x).view(batch, length, self.kv_heads, self.head_dim).transpose(1, 2)
        value = self.value(x).view(batch, length, self.kv_heads, self.head_dim).transpose(1, 2)
        attended = F.scaled_dot_product_attention(
            rotate(query, cos, sin), rotate(key, cos, sin), value, is_causal=True, enable_gqa=True
        )
        merged: Tensor = self.out(attended.transpose(1, 2).reshape(batch, length, -1))
        return merged


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.gate = nn.Linear(shape.width, shape.hidden, bias=False)
        self.up = nn.Linear(shape.width, shape.hidden, bias=False)
        self.down = nn.Linear(shape.hidden, shape.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        merged: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return merged


class DecoderLayer(nn.Module):
    """Attention and feed-forward, each behind a norm and added to the residual stream."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(shape.width)
        self.attention = Attention(shape)
        self.feed_forward_norm = RMSNorm(shape.width)
        self.feed_forward = FeedForward(shape)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin)
        merged: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return merged


class Decoder(nn.Module):
    """The language model.

    Args:
        length: longest sequence.
        tied: the head shares the embedding's weight.
    """

    rotary_cos: Tensor
    rotary_sin: Tensor

    def __init__(self, shape: ModelShape, *, length: int, tied: bool) -> None:
        super().__init__()
        self.config = shape
        self.embedding = nn.Embedding(shape.vocab, shape.width)
        self.layers = nn.ModuleList(DecoderLayer(shape) for _ in range(shape.layers))
        self.norm = RMSNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocab, bias=False)
        if tied:
            self.head.weight = self.embedding.weight
        cos, sin = rotary_tables(length, shape.head_dim)
        self.register_buffer("rotary_cos", cos, persistent=False)
        self.register_buffer("rotary_sin", sin, persistent=False)
        self._init_weights(shape.layers)

    def _init_weights(self, layers: int) -> None:
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                residual = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(parameter, std=INIT_STD / (2 * layers) ** 0.5 if residual else INIT_STD)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of shape (batch, length, vocab) for tokens of shape (batch, length)."""
        length = tokens.shape[1]
        cos, sin = self.rotary_cos[:length], self.rotary_sin[:length]
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, cos, sin)
        logits: Tensor = self.head(self.norm(x))
        return logits
