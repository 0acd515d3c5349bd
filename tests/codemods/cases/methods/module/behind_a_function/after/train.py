from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel as DDP

from fsdp2_sharding import shard_model


def is_wrapped(m):
    return isinstance(m, (DDP, FSDPModule))


def is_fsdp(m):
    return isinstance(m, FSDPModule)


def is_parallel(m):
    return isinstance(m, (DDP, FSDPModule))


def has_module(m):
    return hasattr(m, "module")


def unwrap(m):
    return getattr(m, "module", m) if is_wrapped(m) else m


def unwrap2(m):
    if is_parallel(m):
        return getattr(m, "module", m)
    return m


def unwrap3(m):
    while is_wrapped(m):
        # TODO(fsdp-migrate FM307): ask for the classes of the other wrappers only
        m = m.module
    return m


def unwrap4(m):
    return m if is_fsdp(m) else m


def unwrap5(m):
    return getattr(m, "module", m) if has_module(m) else m


def unwrap6(m):
    while has_module(m):
        m = getattr(m, "module", m)
    return m


def unwrap7(m):
    # TODO(fsdp-migrate FM307): return the model where it is an `FSDPModule`, and go on
    #   for other wrappers only
    return unwrap7(m.module) if is_wrapped(m) else m


def main(net, plain):
    model = shard_model(net) if plain else net
    for f in (unwrap, unwrap2, unwrap3, unwrap4, unwrap5, unwrap6):
        f(model)
    return unwrap(model), unwrap2(model), unwrap3(model), unwrap4(model), unwrap5(model), unwrap6(model)
