import decorated
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)
from torch.distributed.fsdp import fully_shard


def save(model, path):
    # TODO(fsdp-migrate FM312): call it on every rank, and let one rank use the result
    torch.save(
        get_model_state_dict(model, options=StateDictOptions(full_state_dict=True)),
        path,
    )


def save_on_all(model, path):
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    if dist.get_rank() == 0:
        torch.save(state, path)


def save_inner(model, path):
    inner = model.module if hasattr(model, "module") else model
    # TODO(fsdp-migrate FM312): call it on every rank, and let one rank use the result
    torch.save(
        get_model_state_dict(inner, options=StateDictOptions(full_state_dict=True)),
        path,
    )


def rank_zero_only(function):
    return lambda *given: function(*given) if dist.get_rank() == 0 else None


class Saver:
    def __init__(self, model):
        self.model = fully_shard(model)

    @rank_zero_only
    def save(self, path):
        # TODO(fsdp-migrate FM312): call it on every rank, and let one rank use the
        #   result
        torch.save(
            get_model_state_dict(
                self.model, options=StateDictOptions(full_state_dict=True)
            ),
            path,
        )

    def save_later(self, path):
        self.write(path)

    def write(self, path):
        # TODO(fsdp-migrate FM312): call it on every rank, and let one rank use the
        #   result
        torch.save(
            get_model_state_dict(
                self.model, options=StateDictOptions(full_state_dict=True)
            ),
            path,
        )

    def loop(self):
        if dist.get_rank() != 0:
            return
        self.save_later("last.pt")


def main(distributed):
    model = nn.Linear(4, 4)
    if distributed:
        fully_shard(model)
        if dist.get_rank() == 0:
            save_inner(model, "inner.pt")
    else:
        save_inner(model, "inner.pt")


@decorated.main(config="rank_zero_only")
def train():
    model = nn.Linear(4, 4)
    fully_shard(model)
    save_on_all(model, "all.pt")
    if dist.get_rank() == 0:
        save(model, "model.pt")
    Saver(nn.Linear(4, 4)).loop()
