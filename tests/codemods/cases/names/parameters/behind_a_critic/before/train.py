import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def sharded(net):
    return FSDP(net, use_orig_params=True)


def critic_last(net, critic, batches):
    maker, judge = sharded(net), sharded(critic)
    average = [p.detach().clone() for p in maker.parameters()]
    for x in batches:
        judge(maker(x)).mean().backward()
        with torch.no_grad():
            made = maker(x)
        gap = judge(made).mean()
        gap.backward()
        for kept, p in zip(average, maker.parameters()):
            kept.lerp_(p.detach(), 0.1)


def maker_last(net, critic, batches):
    maker, judge = sharded(net), sharded(critic)
    average = [p.detach().clone() for p in maker.parameters()]
    for x in batches:
        with torch.no_grad():
            made = maker(x)
        judge(made).mean().backward()
        made = maker(x)
        scores = judge(made)
        loss = scores.mean()
        loss.backward()
        for kept, p in zip(average, maker.parameters()):
            kept.lerp_(p.detach(), 0.1)


def loss_of(model, x):
    return model(x).mean()


def loss_of_a_function(net, batches):
    model = sharded(net)
    average = [p.detach().clone() for p in model.parameters()]
    for x in batches:
        with torch.no_grad():
            before = model(x)
        loss = loss_of(model, x) - before.mean()
        loss.backward()
        for kept, p in zip(average, model.parameters()):
            kept.lerp_(p.detach(), 0.1)
