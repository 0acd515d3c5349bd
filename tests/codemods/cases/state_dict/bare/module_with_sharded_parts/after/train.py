import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)

from model import batch, loss_of
from parts import Pair, shards_of_part


def save(pair, path):
    state = get_model_state_dict(pair, options=StateDictOptions(full_state_dict=True))
    students = get_model_state_dict(
        pair.students, options=StateDictOptions(full_state_dict=True)
    )
    if dist.get_rank() == 0:
        torch.save({"all": state, "students": students}, path)


class Settings(nn.Module):
    def __init__(self):
        super().__init__()
        self.width = nn.Linear(2, 2)


def main(out, shards):
    pair = Pair()
    pair.shard()
    plain = Settings()
    optimizer = torch.optim.AdamW(pair.parameters(), lr=0.01)
    losses = []
    for step in range(2):
        optimizer.zero_grad()
        loss = loss_of(pair, batch(step))
        loss.backward()
        nn.utils.clip_grad_norm_(pair.students["one"].parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    save(pair, out / "pair.pt")
    dist.barrier()
    again = Pair()
    again.shard()
    set_model_state_dict(
        again,
        torch.load(out / "pair.pt")["all"],
        options=StateDictOptions(full_state_dict=True),
    )
    losses.append(loss_of(again, batch(3)).item())
    plain.load_state_dict(plain.state_dict())
    if shards:
        shards_of_part(pair)
    return {"losses": losses}
