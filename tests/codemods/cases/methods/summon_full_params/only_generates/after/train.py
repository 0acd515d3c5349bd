import torch
from torch.distributed.fsdp import fully_shard


def sample(model, tokens):
    fully_shard(model)
    # greedy decoding
    return model.generate(tokens, max_length=16)


def evaluate(model, tokens, is_fsdp):
    fully_shard(model)
    with torch.no_grad():
        first = model.generate(tokens, max_length=16)
    second = model.generate(tokens, max_length=8)
    with torch.inference_mode(), torch.autocast("cuda"):
        return first, second, model.generate(tokens, max_length=4)
