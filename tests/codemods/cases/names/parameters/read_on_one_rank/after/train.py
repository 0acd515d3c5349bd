from torch.distributed.fsdp import fully_shard


def main(net, rank):
    model = fully_shard(net)
    model(3).backward()
    if rank == 0:
        for name, p in model.named_parameters():
            # TODO(fsdp-migrate FM514): use `full_tensor()` for whole values or
            #   `to_local()` for this rank's, and drop reductions of your own;
            #   `full_tensor()` takes every rank, and only one comes here
            print(name, p.grad.norm().item())
    for name, p in model.named_parameters():
        # TODO(fsdp-migrate FM514): use `full_tensor()` for whole values or `to_local()`
        #   for this rank's, and drop reductions of your own
        print(name, p.grad.norm().item())
