from fsdp2_sharding import FullStateDictConfig, StateDictType, state_dict_type
from saving import gather, read_shards, write_file, write_shards
from steps import build, train


def main(out):
    model, optimizer = build()
    losses = train(model, optimizer, 0, 2)
    again, _ = build()
    with state_dict_type(
        model,
        StateDictType.FULL_STATE_DICT,
        FullStateDictConfig(rank0_only=True),
    ):
        write_file(model, out / "model.pt")
    with state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        write_shards(model, out / "shards")
    with state_dict_type(again, StateDictType.SHARDED_STATE_DICT):
        read_shards(again, out / "shards")
    return {"losses": losses, "model": again, "state": gather(again)}
