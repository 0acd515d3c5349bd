from contextlib import nullcontext

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def sample(model, tokens):
    model = FSDP(model)
    with FSDP.summon_full_params(model, writeback=False, recurse=False):
        # greedy decoding
        return model.generate(tokens, max_length=16)


def evaluate(model, tokens, is_fsdp):
    model = FSDP(model)
    with torch.no_grad(), FSDP.summon_full_params(model, writeback=False):
        first = model.generate(tokens, max_length=16)
    with FSDP.summon_full_params(model, recurse=False) if is_fsdp else nullcontext():
        second = model.generate(tokens, max_length=8)
    with (
        torch.inference_mode(),
        FSDP.summon_full_params(model, recurse=False) if is_fsdp else nullcontext(),
        torch.autocast("cuda"),
    ):
        return first, second, model.generate(tokens, max_length=4)
