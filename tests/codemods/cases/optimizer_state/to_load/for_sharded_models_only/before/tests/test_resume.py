from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from model import Model
from train import load_model


def test_resume(args, path, sharded):
    model = Model()
    if sharded:
        model = FSDP(model)
    load_model(args, model, path)
