import torch
from torch.distributed.fsdp import fully_shard

from model import Block, Model


def is_block(module):
    # TODO(fsdp-migrate FM508): test with `isinstance`
    return type(module) is Block


def main(path):
    model = Model()
    fully_shard(model)
    blocks = [m for m in model.modules() if is_block(m)]
    # TODO(fsdp-migrate FM508): test with `isinstance`
    first = type(model.blocks[0]) is Block
    known = type(model.config) is dict
    # TODO(fsdp-migrate FM510): save `get_model_state_dict(model,
    #   options=StateDictOptions(full_state_dict=True, cpu_offload=True))`, called on
    #   every rank
    torch.save(model, path)
    return blocks, first, type(model) is Model, known
