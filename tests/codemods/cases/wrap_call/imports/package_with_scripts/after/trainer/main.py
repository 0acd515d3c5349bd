from trainer.fsdp2_sharding import shard_model
from trainer.parts.wrap import policy


def main(model, cfg):
    model = shard_model(model, auto_wrap_policy=policy(cfg))
    return model


if __name__ == "__main__":
    main(None, None)
