from model import Model, Plain
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def main(data):
    model = FSDP(Model(), use_orig_params=True)
    optimizer = model.configured(0.01)
    print(model.module.flops())
    for batch in data:
        model(batch).backward()
        model.clip(1.0)
        optimizer.step()
    plain = Plain()
    return plain.groups(), plain.tall()
