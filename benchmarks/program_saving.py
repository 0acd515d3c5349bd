"""Ways in which training programs save and load, spelled as in `program_parts`."""

from __future__ import annotations

_FULL = "@FullyShardedDataParallel.state_dict_type(M, @StateDictType.FULL_STATE_DICT"
_SHARDED = "with @FullyShardedDataParallel.state_dict_type(M, @StateDictType.SHARDED_STATE_DICT):"
# On a CPU, FSDP1 that offloads optimizer states gives one tensor for several of them (torch 2.13).
_STATES = "@FullStateDictConfig(), @FullOptimStateDictConfig(offload_to_cpu=False)"
_OPTIM = "@FullyShardedDataParallel.optim_state_dict(M, O)"
_WRITE = "if rank == 0:\n    torch.save(state, out / 'state.pt')\ndist.barrier()"
SAVE = {
    "": "",
    "full": f"with {_FULL}):\n    state = {{'model': M.state_dict()}}\n{_WRITE}",
    "full and optim": f"""\
with {_FULL}, {_STATES}):
    state = {{'model': M.state_dict(), 'optim': {_OPTIM}}}
{_WRITE}""",
    "set": f"""\
@FullyShardedDataParallel.set_state_dict_type(M, @StateDictType.FULL_STATE_DICT, {_STATES})
state = {{'model': M.state_dict(), 'optim': {_OPTIM}}}
{_WRITE}""",
    **dict.fromkeys(
        ("shard", "scatter"),
        f"""\
with {_FULL}):
    weights = M.state_dict()
moments = @FullyShardedDataParallel.full_optim_state_dict(M, O)
if rank == 0:
    torch.save({{'model': weights, 'optim': moments}}, out / 'state.pt')
dist.barrier()""",
    ),
    "sharded": f"""\
{_SHARDED}
    state = {{'model': M.state_dict(), 'optim': {_OPTIM}}}
    dcp.save(state, checkpoint_id=str(out / 'sharded'))""",
    "old dcp": f"""\
{_SHARDED}
    state = {{'model': M.state_dict()}}
    dcp.save_state_dict(state, dcp.FileSystemWriter(str(out / 'sharded')))""",
    "rank 0": f"""\
with {_FULL}, @FullStateDictConfig(offload_to_cpu=True, rank0_only=True)):
    state = M.state_dict()
if rank == 0:
    torch.save(state, out / 'rank0.pt')""",
    "summon": """\
with @FullyShardedDataParallel.summon_full_params(M, writeback=False):
    if rank == 0:
        torch.save({n: p.detach().clone() for n, p in M.named_parameters()}, out / 'whole.pt')
    dist.barrier()""",
    "summon state": """\
with @FullyShardedDataParallel.summon_full_params(M, writeback=False, rank0_only=True, offload_to_cpu=True):
    if rank == 0:
        torch.save({'net': M.state_dict()}, out / 'net.pt')""",
    "chosen": """\
kind = @StateDictType.FULL_STATE_DICT if out else @StateDictType.SHARDED_STATE_DICT
with @FullyShardedDataParallel.state_dict_type(M, kind):
    state = M.state_dict()
if rank == 0:
    torch.save(state, out / 'chosen.pt')""",
    "by a function": """\
def whole(module):
    config = @FullStateDictConfig(rank0_only=True, offload_to_cpu=False)
    with @FullyShardedDataParallel.state_dict_type(module, @StateDictType.FULL_STATE_DICT, config):
        return module.state_dict()
state = whole(M)
if rank == 0:
    torch.save({'weights': state, 'epoch': 1}, out / 'weights.pt')""",
}
SAVES_OPTIMIZER = ("full and optim", "set", "sharded", "shard", "scatter")
_READ = "state = torch.load(out / 'state.pt', weights_only=False)"
_TO_LOAD = "@FullyShardedDataParallel.optim_state_dict_to_load(M, O, state['optim'])"
LOAD = {
    "full": f"{_READ}\nwith {_FULL}):\n    M.load_state_dict(state['model'])",
    "full and optim": f"""\
{_READ}
with {_FULL}, {_STATES}):
    M.load_state_dict(state['model'])
    O.load_state_dict({_TO_LOAD})""",
    "set": f"{_READ}\nM.load_state_dict(state['model'])\nO.load_state_dict({_TO_LOAD})",
    "shard": f"""\
{_READ}
with {_FULL}):
    M.load_state_dict(state['model'])
moments = @FullyShardedDataParallel.shard_full_optim_state_dict(state['optim'], M, optim=O)
O.load_state_dict(moments)""",
    "scatter": f"""\
{_READ}
with {_FULL}):
    M.load_state_dict(state['model'])
given = state['optim'] if rank == 0 else None
O.load_state_dict(@FullyShardedDataParallel.scatter_full_optim_state_dict(given, M, optim=O))""",
    "sharded": f"""\
{_SHARDED}
    state = {{'model': M.state_dict(), 'optim': {_OPTIM}}}
    dcp.load(state, checkpoint_id=str(out / 'sharded'))
    M.load_state_dict(state['model'])
    O.load_state_dict({_TO_LOAD})""",
    "old dcp": f"""\
{_SHARDED}
    state = {{'model': M.state_dict()}}
    dcp.load_state_dict(state, dcp.FileSystemReader(str(out / 'sharded')))
    M.load_state_dict(state['model'])""",
}
"""By the way in which the checkpoint was saved."""
