from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from optim import Signed


def grouped(model):
    param_groups = []
    for name, p in model.named_parameters():
        param_groups.append({"params": [p], "param_names": [name]})
    return param_groups


def main(batches):
    model = FSDP(nn.Linear(4, 4), use_orig_params=True)
    optimizer = Signed(grouped(model), lr=0.1)
    for batch in batches:
        model(batch).sum().backward()
        optimizer.clip(1.0)
        optimizer.step()
    return optimizer.state_dict()["param_groups"][0]["param_names"]
