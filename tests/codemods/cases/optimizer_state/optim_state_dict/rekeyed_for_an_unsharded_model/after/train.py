import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

from fsdp2_sharding import (
    OptimStateKeyType,
    full_tensors,
    load_full_optimizer,
    rekey_optim_state_dict,
)
from model import Model
from steps import build, train


def main(out):
    model, optimizer = build()
    losses = train(model, optimizer, 0, 2)
    state = full_tensors(
        get_optimizer_state_dict(model, optimizer), offload_to_cpu=True
    )
    plain = Model()
    plain_optimizer = torch.optim.AdamW(plain.parameters(), lr=0.01)
    by_number = rekey_optim_state_dict(state, OptimStateKeyType.PARAM_ID, plain)
    plain_optimizer.load_state_dict(by_number)
    by_name = rekey_optim_state_dict(
        plain_optimizer.state_dict(),
        OptimStateKeyType.PARAM_NAME,
        model=plain,
        optim=plain_optimizer,
    )
    if dist.get_rank() == 0:
        torch.save({"number": by_number, "name": by_name}, out / "optim.pt")
    again, again_optimizer = build()
    load_full_optimizer(again, again_optimizer, by_name)
    losses += train(again, again_optimizer, 2, 3)
    return {"losses": losses, "model": again}
