from torch.distributed.fsdp import fully_shard


def run(model, batches, accumulate):
    fully_shard(model)
    for i, batch in enumerate(batches):
        model.set_requires_gradient_sync((i + 1) % accumulate == 0)
        model(batch).mean().backward()
