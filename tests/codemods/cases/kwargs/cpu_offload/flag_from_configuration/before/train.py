import torch
import torch.distributed as dist
from torch.distributed.fsdp import CPUOffload
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from config import TrainConfig
from model import Model, batch, loss_of


def setup(cfg):
    if not dist.is_initialized():
        dist.init_process_group(backend=cfg.backend)


def main(out, offload, steps):
    cfg = TrainConfig(cpu_offload=offload)
    setup(cfg)
    torch.manual_seed(3)
    # The reference is passed the flag even when it is False, the policy only when it is True.
    reference = FSDP(
        Model(),
        cpu_offload=CPUOffload(offload_params=cfg.cpu_offload),
        device_id=torch.device("cpu"),
    )
    policy = FSDP(
        Model(),
        cpu_offload=CPUOffload(offload_params=True) if cfg.cpu_offload else None,
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )
    optimizer = torch.optim.AdamW(policy.parameters(), lr=0.01)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        tokens = batch(step)
        with torch.no_grad():
            margin = loss_of(reference, tokens)
        loss = (loss_of(policy, tokens) - margin).exp()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"model": policy, "losses": losses}
