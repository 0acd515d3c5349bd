import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import OptimStateKeyType

from model import Model
from steps import build, train


def main(out):
    model, optimizer = build()
    losses = train(model, optimizer, 0, 2)
    state = FSDP.full_optim_state_dict(model, optimizer, rank0_only=False)
    plain = Model()
    plain_optimizer = torch.optim.AdamW(plain.parameters(), lr=0.01)
    by_number = FSDP.rekey_optim_state_dict(state, OptimStateKeyType.PARAM_ID, plain)
    plain_optimizer.load_state_dict(by_number)
    by_name = FSDP.rekey_optim_state_dict(
        plain_optimizer.state_dict(),
        OptimStateKeyType.PARAM_NAME,
        model=plain,
        optim=plain_optimizer,
    )
    if dist.get_rank() == 0:
        torch.save({"number": by_number, "name": by_name}, out / "optim.pt")
    again, again_optimizer = build()
    sharded = FSDP.shard_full_optim_state_dict(by_name, again, optim=again_optimizer)
    again_optimizer.load_state_dict(sharded)
    losses += train(again, again_optimizer, 2, 3)
    return {"losses": losses, "model": again}
