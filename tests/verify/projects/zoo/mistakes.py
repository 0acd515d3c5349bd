"""Known mistakes of migrations to FSDP2, each as what the right program does otherwise.

A class here replaces methods of `Fsdp2` in train_fsdp2.py; the name of the class is the name of the mistake.
"""

import os
import socket
import time

import loop
import torch
import torch.distributed as dist
from model import Block, Inner, Model, init_by_type, optimizer_for
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard


def planted(mistake, right):
    """The right program with one mistake."""
    return type(mistake.__name__, (mistake, right), {})


# The optimizer and what it holds.


class OptimizerFirst:
    def optimizer(self, model, early):
        return early


class OptimizerLate:
    def optimizer(self, model, early):
        with torch.no_grad():
            model(torch.zeros(1, 8, dtype=torch.long))
        return optimizer_for(list(model.parameters()), self.choice)


class OptimizerLacks:
    def optimizer(self, model, early):
        return optimizer_for([p for n, p in model.named_parameters() if "blocks" in n], self.choice)


class OptimizerKind:
    def optimizer(self, model, early):
        return optimizer_for(list(model.parameters()), self.choice, "sgd")


class Groups:
    def optimizer(self, model, early):
        return optimizer_for(list(model.parameters()), self.choice)


class GroupsByName:
    """No decay for biases, by a pattern that expects the wrapper's prefix."""

    def optimizer(self, model, early):
        named = list(model.named_parameters())
        wrapped = [p for n, p in named if "_fsdp_wrapped_module" in n]
        rest = [p for n, p in named if "_fsdp_wrapped_module" not in n]
        groups = [{"params": rest, "weight_decay": 0.0}]
        return torch.optim.AdamW(
            groups + ([{"params": wrapped}] if wrapped else []), lr=1e-2, weight_decay=0.1
        )


class LearningRate:
    def optimizer(self, model, early):
        optimizer = optimizer_for(list(model.parameters()), self.choice)
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.5)
        return optimizer


class SchedulerLost:
    skip_scheduler = True


class ZeroGradLost:
    skip_zero_grad = True


class DropFirst:
    """Right as code, wrong as a translation: FSDP2 keeps unreduced gradients."""


# Sharding.


class RootUnsharded:
    def root(self, model, settings):
        settings = settings | {"mp_policy": self.policy()}
        model._unsharded_root = True

    def accumulating(self, model, is_last):
        return loop.nothing()


class NothingSharded:
    def shard(self, model):
        return model

    def accumulating(self, model, is_last):
        return loop.nothing()


class ByDdp:
    """A mistake but for NO_SHARD, which DistributedDataParallel is another word for."""

    def shard(self, model):
        return nn.parallel.DistributedDataParallel(model)

    def accumulating(self, model, is_last):
        return loop.nothing() if is_last else model.no_sync()

    def clip(self, model, optimizer):
        return nn.utils.clip_grad_norm_(model.parameters(), self.choice.clip)


class IgnoredSharded:
    def settings(self, model):
        found = super().settings(model)
        del found["ignored_params"]
        return found

    def optimizer(self, model, early):
        return None


class IgnoredTooMuch:
    def settings(self, model):
        return {**super().settings(model), "ignored_params": set(model.head.parameters())}

    def optimizer(self, model, early):
        plain = list(model.head.parameters())
        rest = [p for p in model.parameters() if p is not plain[0]]
        return optimizer_for([{"params": rest}, {"params": plain}], self.choice)


class RootOnly:
    units = ()


class WrongUnits:
    """The policy's classes matched by name: `FSDPBlock` is none of them."""

    units = (Inner,)


class StrategyLost:
    """Every strategy becomes full sharding over all ranks."""

    def mesh(self):
        return init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("shard",))

    def settings(self, model):
        return {"mesh": self.mesh()}


class GradOpLost:
    def settings(self, model):
        return {"mesh": self.mesh()}

    def accumulating(self, model, is_last):
        model.set_requires_gradient_sync(is_last)
        return loop.nothing()


class RootReshards:
    def root(self, model, settings):
        fully_shard(model, mp_policy=self.root_policy(), reshard_after_forward=True, **settings)


class CheckpointingLost:
    """`check_fn` asks for the exact class, after fully_shard."""

    def prepare(self, model):
        pass


# How weights start.


class BroadcastLost:
    def broadcast(self, model):
        pass


class OtherSeed:
    def prepare(self, model):
        super().prepare(model)
        with torch.no_grad():
            model.head.weight.normal_()


class MetaUninitialised:
    def shard(self, model):
        with torch.device("meta"):
            model = Model(self.choice)
        model = super().shard(model)
        model.to_empty(device="cpu")
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
            model.table.copy_(Model.positions())
        return model


class MetaBuffers:
    def buffers(self, model):
        with torch.no_grad():
            model.table.zero_()


class LateInit:
    def late_init(self, model):
        init_by_type(model, Block)


class NotLoaded:
    def load(self, model, optimizer, kept):
        pass


class LoadedUnderPrefixes:
    def load(self, model, optimizer, kept):
        model.load_state_dict({f"module.{k}": v for k, v in kept["model"].items()}, strict=False)


class OptimizerNotLoaded:
    def load(self, model, optimizer, kept):
        from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

        set_model_state_dict(model, kept["model"], options=StateDictOptions(full_state_dict=True))


class OptimizerOfOtherParameters:
    def load(self, model, optimizer, kept):
        state = kept["optimizer"]["state"]
        for name in [name for name in state if name.startswith("blocks.0.")]:
            other = name.replace("blocks.0.", "blocks.1.")
            state[name], state[other] = state[other], state[name]
        super().load(model, optimizer, kept)


class ResumesFromNothing:
    def __init__(self, choice):
        super().__init__(choice)
        choice.resume = ""


class SharedStepTensor:
    def load(self, model, optimizer, kept):
        super().load(model, optimizer, kept)
        steps = [state["step"] for state in optimizer.state.values()]
        for state in optimizer.state.values():
            state["step"] = steps[0]


class Thawed:
    def prepare(self, model):
        super().prepare(model)
        model.requires_grad_(True)


class FrozenToo:
    def prepare(self, model):
        super().prepare(model)
        model.head.requires_grad_(False)


class Untied:
    def prepare(self, model):
        model.head.weight = nn.Parameter(model.head.weight.detach().clone())


# Dtypes.


class CastsInputs:
    def policy(self):
        return MixedPrecisionPolicy(loop.DTYPES[self.choice.dtype], loop.DTYPES[self.choice.reduce])


class ReduceDtype:
    def policy(self):
        return MixedPrecisionPolicy(torch.bfloat16, torch.bfloat16, cast_forward_inputs=False)


class PolicyLost:
    def policy(self):
        return MixedPrecisionPolicy()


class PolicyOnRootAlone:
    def policy(self):
        return MixedPrecisionPolicy(cast_forward_inputs=False)

    def root_policy(self):
        return MixedPrecisionPolicy(torch.bfloat16, torch.float32)


class WeightsInBf16:
    def prepare(self, model):
        model.bfloat16()


class Double:
    def prepare(self, model):
        model.double()


class BuffersNotCast:
    def buffers(self, model):
        pass


class NormInBf16:
    """`_module_classes_to_ignore` has no counterpart: the norm becomes part of its block."""

    def units_of(self, model):
        return [m for m in reversed(list(model.modules())) if isinstance(m, self.units)]


class AutocastSpansSteps:
    def autocast(self):
        return torch.autocast("cpu", torch.bfloat16)


# Gradients.


class SyncAlways:
    def accumulating(self, model, is_last):
        return loop.nothing()


class SyncNever:
    def accumulating(self, model, is_last):
        model.set_requires_gradient_sync(False)
        return loop.nothing()


class SyncFirst:
    def __init__(self, choice):
        super().__init__(choice)
        self.passes = 0

    def accumulating(self, model, is_last):
        model.set_requires_gradient_sync(self.passes % self.choice.accumulate == 0)
        self.passes += 1
        return loop.nothing()


class LossByRank:
    def loss(self, value):
        return value * (1.1 if dist.get_rank() else 0.9)


class LossNotDivided:
    def loss(self, value):
        return value * self.choice.accumulate


class LossTimesRanks:
    def loss(self, value):
        return value * dist.get_world_size()


class OtherLoss:
    def loss(self, value):
        return value + 0.1 * value.square()


class OtherLossLater:
    calls = 0

    def loss(self, value):
        self.calls += 1
        return value + 0.1 * value.square() if self.calls == 2 else value


class CountsOneMore:
    def counted(self, step):
        return step + 1


class ZeroGradEarly:
    def clip(self, model, optimizer):
        norm = super().clip(model, optimizer)
        optimizer.zero_grad()
        return norm


class SummedNotAveraged:
    def shard(self, model):
        model = super().shard(model)
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)
        return model


class UnusedGetNothing:
    def shard(self, model):
        model = super().shard(model)
        model.set_reduce_scatter_unused_params(False)
        return model


class NotClipped:
    def clip(self, model, optimizer):
        return None


class ClipGuarded:
    """`if isinstance(model, FullyShardedDataParallel)` around clipping is False now."""

    def clip(self, model, optimizer):
        from torch.distributed.fsdp import FullyShardedDataParallel

        return (
            model.clip_grad_norm_(self.choice.clip) if isinstance(model, FullyShardedDataParallel) else None
        )


class LocalNorm:
    def clip(self, model, optimizer):
        grads = [p.grad.to_local() for p in model.parameters() if p.grad is not None]
        norm = torch.stack([g.norm() for g in grads]).norm()
        for grad in grads:
            grad.mul_(min(1.0, self.choice.clip / (float(norm) + 1e-6)))


class LocalNormByTorch:
    def clip(self, model, optimizer):
        local = [nn.Parameter(p.to_local()) for p in model.parameters()]
        for own, p in zip(local, model.parameters(), strict=True):
            own.grad = p.grad.to_local()
        return nn.utils.clip_grad_norm_(local, self.choice.clip)


class ClipLimit:
    def clip(self, model, optimizer):
        return nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()


class ClipNormType:
    def clip(self, model, optimizer):
        return nn.utils.clip_grad_norm_(model.parameters(), self.choice.clip).full_tensor()


class ClipFirstUnitOnly:
    def clip(self, model, optimizer):
        return nn.utils.clip_grad_norm_(model.blocks[0].parameters(), self.choice.clip).full_tensor()


class ClipsElements:
    def clip(self, model, optimizer):
        nn.utils.clip_grad_value_(model.parameters(), 0.01)


# Data, mode, random numbers, the loop itself.


class OtherData:
    def data_seed(self, rank):
        return rank + 1


class SameDataOnEveryRank:
    def data_seed(self, rank):
        return 0


class StaysInEval:
    stay_in_eval = True


class DrawsMore:
    def begin_step(self, model, step):
        if step == 1:
            torch.rand(1)


class SeedsByRank:
    def begin_step(self, model, step):
        if step == 0:
            torch.manual_seed(7 + dist.get_rank())


class OtherDropout:
    def prepare(self, model):
        super().prepare(model)
        for block in model.blocks:
            block.drop.p = 0.3


class OtherStatistics:
    def prepare(self, model):
        super().prepare(model)
        model.bn.momentum = 0.5


class StopsEarly:
    last_step = 2


class WriteLost:
    def write(self, model):
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.unshard()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(0.9)
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()


class WriteSkipped:
    """A loop over `FSDP.fsdp_modules(model)`, which finds none."""

    def write(self, model):
        from torch.distributed.fsdp import FullyShardedDataParallel

        for module in FullyShardedDataParallel.fsdp_modules(model):
            module._handle.flat_param.data.mul_(0.9)


class AverageOfEarlyList:
    """The average's parameters listed after a forward pass, when its root was gathered."""

    kept = None

    def averaged(self, average, early):
        if self.kept is None:
            with torch.no_grad():
                average(torch.zeros(1, 8, dtype=torch.long))
            self.kept = [p.clone() for p in early]
        return self.kept


class AverageInBf16:
    """The second model that is sharded is the average."""

    sharded = 0

    def shard(self, model):
        self.sharded += 1
        return super().shard(model if self.sharded == 1 else model.bfloat16())


class AverageWithoutPolicy:
    sharded = 0

    def shard(self, model):
        self.sharded += 1
        return super().shard(model)

    def policy(self):
        return super().policy() if self.sharded < 2 else MixedPrecisionPolicy(cast_forward_inputs=False)


# Saving and showing.


class SavesShards:
    def full_state(self, model, optimizer):
        return {"model": model.state_dict()}


class SavesRawOptimizer:
    def full_state(self, model, optimizer):
        return {**super().full_state(model, None), "optimizer": optimizer.state_dict()}


class SavesNothing:
    def full_state(self, model, optimizer):
        return {"model": {}}


class SavesOtherNames:
    def full_state(self, model, optimizer):
        state = super().full_state(model, optimizer)
        return {**state, "model": {f"_orig_mod.{name}": value for name, value in state["model"].items()}}


class ShowsLocalNorm:
    def norm_of_gradients(self, model):
        return sum(p.grad.norm().item() ** 2 for p in model.parameters()) ** 0.5


class ShowsCountTimesRanks:
    def count(self, model):
        return sum(p.numel() for p in model.parameters()) * dist.get_world_size()


class ShowsDtensor:
    def clip(self, model, optimizer):
        return nn.utils.clip_grad_norm_(model.parameters(), self.choice.clip)

    def shown(self, norm):
        return f"clipped norm {norm}"


# What raises.


class ParentFirst:
    units = (Block, Inner)

    def units_of(self, model):
        return [m for m in model.modules() if isinstance(m, self.units)]


class TiedApart:
    def units_of(self, model):
        return [*super().units_of(model), model.embed]


class ShardsTwice:
    def root(self, model, settings):
        fully_shard(model, mp_policy=self.root_policy(), **settings)
        fully_shard(model, mp_policy=self.root_policy(), **settings)


class ShardsContainer:
    def units_of(self, model):
        return [*super().units_of(model), model.blocks]


class CallsForward:
    def shard(self, model):
        return super().shard(model)

    def begin_step(self, model, step):
        model.forward(torch.zeros(1, 8, dtype=torch.long))


class ClipMethod:
    def clip(self, model, optimizer):
        return model.clip_grad_norm_(self.choice.clip)


class NoSyncMethod:
    def accumulating(self, model, is_last):
        return loop.nothing() if is_last else model.no_sync()


class FormatsNorm:
    def clip(self, model, optimizer):
        return nn.utils.clip_grad_norm_(model.parameters(), self.choice.clip)

    def shown(self, norm):
        return f"clipped norm {norm:.3f}"


class LoadsPlain:
    def load(self, model, optimizer, kept):
        model.load_state_dict(kept["model"])


class UnnamedMesh:
    def mesh(self):
        return init_device_mesh("cpu", (2, dist.get_world_size() // 2))


class MixedOptimizer:
    def optimizer(self, model, early):
        return torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1, foreach=True)


class GathersOnRankZero:
    def write(self, model):
        if dist.get_rank() == 0:
            for parameter in model.parameters():
                parameter.full_tensor()


class SkipsModule:
    """One rank does not call a block: what a mixture of experts or of modalities does."""

    def begin_step(self, model, step):
        if step == 1 and dist.get_rank() == 1:
            first = model.blocks[1]
            model.blocks = nn.ModuleList(block for block in model.blocks if block is not first)


class SkipsParameters:
    """A rank whose batch leaves a part of a unit out of its loss."""

    def begin_step(self, model, step):
        if step == 1 and dist.get_rank() == 1:
            down = model.blocks[1].down
            down.forward = lambda x: nn.functional.linear(x, down.weight.detach(), down.bias)


# What ends a job.


class Crashes:
    def begin_step(self, model, step):
        if step == 1 and dist.get_rank() == 1:
            raise ValueError("bad batch")


class GathersOnOneRank:
    def begin_step(self, model, step):
        if step == 1 and dist.get_rank() == 0:
            print(next(model.parameters()).full_tensor().sum())


class Hangs:
    def begin_step(self, model, step):
        while step == 1 and dist.get_rank() == 1:
            time.sleep(0.1)


class IsKilled:
    def begin_step(self, model, step):
        if step == 1 and dist.get_rank() == 1:
            os.kill(os.getpid(), 9)


class WrongWorldSize:
    def mesh(self):
        return init_device_mesh("cpu", (8,), mesh_dim_names=("shard",))


class PortInUse:
    """A second group on a port of the script's own choice, which another process holds."""

    def begin_step(self, model, step):
        if dist.get_rank() == 0:
            with socket.socket() as taken:
                taken.bind(("127.0.0.1", 0))
                taken.listen()
                dist.TCPStore("127.0.0.1", taken.getsockname()[1], 2, is_master=True)
