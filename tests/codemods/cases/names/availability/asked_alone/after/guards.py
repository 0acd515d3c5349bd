from torch.distributed.fsdp import FSDPModule


def check(model):
    return model is not None and (isinstance(model, FSDPModule))


def check_either(model, module):
    return isinstance(model, FSDPModule) or (module is not None)
