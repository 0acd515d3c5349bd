import torch
from bitsandbytes.nn import Linear4bit
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def replace_linear(model):
    for name, module in model.named_children():
        if isinstance(module, torch.nn.Linear):
            quantised = Linear4bit(
                module.in_features,
                module.out_features,
                quant_storage=torch.bfloat16,
            )
            setattr(model, name, quantised)
    return model


def main(model):
    return FSDP(replace_linear(model), use_orig_params=False)
