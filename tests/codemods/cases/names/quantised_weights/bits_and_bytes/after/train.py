import torch
from bitsandbytes.nn import Linear4bit

from fsdp2_sharding import shard_model


def replace_linear(model):
    for name, module in model.named_children():
        if isinstance(module, torch.nn.Linear):
            # TODO(fsdp-migrate FM525): leave frozen quantised weights out by
            #   `ignored_params`, or use a tensor class that FSDP2 can cut (torchao's
            #   `NF4Tensor`)
            quantised = Linear4bit(
                module.in_features,
                module.out_features,
                quant_storage=torch.bfloat16,
            )
            setattr(model, name, quantised)
    return model


def main(model):
    return shard_model(replace_linear(model))
