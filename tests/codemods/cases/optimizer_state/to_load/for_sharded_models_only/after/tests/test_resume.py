from torch.distributed.fsdp import fully_shard

from model import Model
from train import load_model


def test_resume(args, path, sharded):
    model = Model()
    if sharded:
        fully_shard(model)
    load_model(args, model, path)
