"""What is done to the model before it is sharded, the same in both arms: float8, activation checkpointing,
compilation; in torchtitan's order.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from fsdp_migrate.verify.reference_job.config import ReferenceConfig
from fsdp_migrate.verify.reference_job.model import Decoder, DecoderLayer

_aten = torch.ops.aten
_KEPT = {
    _aten.mm.default,
    _aten.addmm.default,
    _aten._scaled_dot_product_flash_attention.default,
    _aten._scaled_dot_product_efficient_attention.default,
    _aten._scaled_dot_product_cudnn_attention.default,
    _aten._scaled_dot_product_flash_attention_for_cpu.default,
}
"""What `selective` keeps: the results that take longest to compute again."""


def prepare(model: Decoder, config: ReferenceConfig) -> None:
    """Prepare the layers, in place."""
    if config.float8:
        _in_float8(model)
    if config.ac != "none":
        apply_activation_checkpointing(
            model,
            checkpoint_wrapper_fn=_kept_partly if config.ac == "selective" else _kept_not_at_all,
            check_fn=lambda module: isinstance(module, DecoderLayer),
        )
    if config.compile:
        for layer in model.layers:
            layer.compile()


def _kept_not_at_all(layer: nn.Module) -> nn.Module:
    return checkpoint_wrapper(layer, CheckpointImpl.NO_REENTRANT)


def _kept_partly(layer: nn.Module) -> nn.Module:
    def policy(_context: Any, operation: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        kept = operation in _KEPT
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    contexts: Any = create_selective_checkpoint_contexts
    return checkpoint_wrapper(layer, CheckpointImpl.NO_REENTRANT, context_fn=lambda: contexts(policy))


def _in_float8(model: Decoder) -> None:
    float8: Any = importlib.import_module("torchao.float8")
    able = torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 9)
    float8.convert_to_float8_training(
        model,
        config=float8.Float8LinearConfig(emulate=not able),
        module_filter_fn=lambda _module, name: "layers." in name,
    )
