from model import Model, Plain
from torch.distributed.fsdp import fully_shard


def main(data):
    model = Model()
    fully_shard(model)
    optimizer = model.configured(0.01)
    print(model.flops())
    for batch in data:
        model(batch).backward()
        model.clip(1.0)
        optimizer.step()
    plain = Plain()
    return plain.groups(), plain.tall()
