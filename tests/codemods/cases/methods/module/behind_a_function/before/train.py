from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP


def is_wrapped(m):
    return isinstance(m, (DDP, FSDP))


def is_fsdp(m):
    return isinstance(m, FSDP)


def is_parallel(m):
    return type(m) in (DDP, FSDP)


def has_module(m):
    return hasattr(m, "module")


def unwrap(m):
    return m.module if is_wrapped(m) else m


def unwrap2(m):
    if is_parallel(m):
        return m.module
    return m


def unwrap3(m):
    while is_wrapped(m):
        m = m.module
    return m


def unwrap4(m):
    return m.module if is_fsdp(m) else m


def unwrap5(m):
    return m.module if has_module(m) else m


def unwrap6(m):
    while has_module(m):
        m = m.module
    return m


def unwrap7(m):
    return unwrap7(m.module) if is_wrapped(m) else m


def main(net, plain):
    model = FSDP(net, use_orig_params=True) if plain else net
    for f in (unwrap, unwrap2, unwrap3, unwrap4, unwrap5, unwrap6):
        f(model)
    return unwrap(model), unwrap2(model), unwrap3(model), unwrap4(model), unwrap5(model), unwrap6(model)
