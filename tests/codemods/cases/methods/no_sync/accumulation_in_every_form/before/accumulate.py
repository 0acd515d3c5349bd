import contextlib
from contextlib import nullcontext

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP

from model import Model, batch, loss_of


def wrap(model, sharded):
    if sharded:
        return FSDP(model, device_id=torch.device("cpu"), use_orig_params=True)
    return DDP(model)


def conditional(model, optimizer, n=2):
    for i in range(4):
        is_last = (i + 1) % n == 0
        with model.no_sync() if n > 1 and not is_last else nullcontext():
            loss_of(model, batch(i)).backward()
        if is_last:
            optimizer.step()
            optimizer.zero_grad()


def context_in_a_name(model, optimizer, n=2):
    for i in range(4):
        accumulates = (i + 1) % n != 0
        if accumulates:
            context = model.no_sync()
        else:
            context = nullcontext()
        with context:
            loss_of(model, batch(i)).backward()
        if not accumulates:
            optimizer.step()
            optimizer.zero_grad()


def method_first(model, optimizer, n=2):
    maybe_no_sync = model.no_sync if n > 1 else nullcontext
    for i in range(n - 1):
        with maybe_no_sync():
            loss_of(model, batch(i)).backward()
    loss_of(model, batch(n)).backward()
    optimizer.step()
    optimizer.zero_grad()


class Wrapper:
    """Holds a sharded model, and has a method of that name itself."""

    def __init__(self, sharded):
        self.model = wrap(Model(), sharded)

    def no_sync(self):
        return self.model.no_sync()

    @contextlib.contextmanager
    def maybe_no_sync(self, wanted):
        if wanted:
            with self.model.no_sync():
                yield
        else:
            yield


def in_a_class(sharded):
    wrapper = Wrapper(sharded)
    optimizer = torch.optim.SGD(wrapper.model.parameters(), lr=0.1)
    with wrapper.no_sync():
        loss_of(wrapper.model, batch(0)).backward()
    with wrapper.maybe_no_sync(True):
        loss_of(wrapper.model, batch(1)).backward()
    with wrapper.maybe_no_sync(False):
        loss_of(wrapper.model, batch(2)).backward()
    optimizer.step()
    return wrapper.model
