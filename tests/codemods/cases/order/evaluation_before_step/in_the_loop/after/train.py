import torch
from torch.distributed.fsdp import fully_shard


@torch.no_grad()
def evaluate(model, batch):
    return model(batch)


def log(model, batch):
    return model(batch)


def main(model, batches):
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in batches:
        evaluate(model, batch)
        model(batch).backward()
        evaluate(model, batch)
        optimizer.step()
    for batch in batches:
        model(batch).backward()
        optimizer.step()
        with torch.no_grad():
            log(model, batch)


def limited(optimizer, model, batch):
    """What looks at gradients runs no model; what hands the model on does."""
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    model(batch).backward()
    scale(model)
    optimizer.step()
    model(batch).backward()
    validated(model, batch)
    optimizer.step()


@torch.no_grad()
def norm(model):
    # TODO(fsdp-migrate FM514): use `full_tensor()` for whole values or `to_local()` for
    #   this rank's, and drop reductions of your own
    return torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])


@torch.no_grad()
def scale(model):
    total = norm(model)
    for p in model.parameters():
        p.grad.mul_(1 / total)


def validated(model, batch):
    model.eval()
    return evaluate(model, batch)
