import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save(model, path):
    full = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, full):
        state = model.state_dict()
    if dist.get_rank() == 0:
        torch.save(state, path)


def compiled_after(path):
    model = FSDP(nn.Linear(4, 4), use_orig_params=True)
    model = torch.compile(model)
    save(model, path)


def compiled_before(path):
    net = nn.Linear(4, 4)
    net = torch.compile(net)
    sharded = FSDP(net, use_orig_params=True)
    save(sharded, path)


def compiled_for_running(batch, path):
    plain = FSDP(nn.Linear(4, 4), use_orig_params=True)
    quick = torch.compile(plain)
    quick(batch)
    state = plain.state_dict()
    torch.save(state, path)


def in_place(path):
    other = FSDP(nn.Linear(4, 4), use_orig_params=True)
    other.compile()
    torch.save(other.state_dict(), path)
