from fsdp2_sharding import shard_model


def describe(model, group):
    model = shard_model(model, process_group=group)
    # TODO(fsdp-migrate FM310): compare with the model you sharded: `module is model`
    if model.check_is_root():
        # TODO(fsdp-migrate FM310): keep what your configuration says; an FSDP2 model
        #   does not remember it
        print(model.sharding_strategy, model.world_size)
    # TODO(fsdp-migrate FM310): use `next(model.parameters()).device_mesh.get_group()`,
    #   or keep the mesh; of two dimensions the one that shards
    return model.process_group
