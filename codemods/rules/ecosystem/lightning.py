"""Lightning's and Fabric's `FSDPStrategy`.

Source: lightning 2.6 `pytorch/strategies/fsdp.py`, `fabric/strategies/fsdp.py`,
`*/strategies/model_parallel.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from codemods.analysis.class_questions import classes_of
from codemods.analysis.library_calls import is_lightning, lightning_calls
from codemods.configuration.settings import strategy_named
from codemods.editing.lightning_strategy import NotProvable, trainer_around, translate
from codemods.rule import Finding, Module, Project, Safety, finding, rule

_STRATEGIES = ("fsdp", "fsdp_cpu_offload")
_ASK = (
    "ask for `ModelParallelStrategy` once the strategy is changed; state dicts of its models are shards: "
    "`get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))`"
)
_PASSED_ON = ("process_group_backend", "timeout")


@rule(
    "FSDPStrategy",
    {
        "FM630": "Lightning's strategy for FSDP1",
        "FM631": "Lightning's strategy for FSDP1, asked for by its name",
        "FM632": "Lightning's strategy becomes that of FSDP2",
        "FM633": "a question whether Lightning's strategy is that for FSDP1",
    },
    order=20,
)
def lightning_strategy(project: Project) -> Iterator[Finding]:
    """Lightning's `FSDPStrategy` becomes `ModelParallelStrategy`, and the `LightningModule` gets the
    `fully_shard` calls.

    The two are no drop-in for each other: `FSDPStrategy` wraps the module itself; `ModelParallelStrategy`
    shards nothing, and a module whose `configure_model` (Fabric: the `parallelize_fn`) makes no `fully_shard`
    calls would train unsharded without a word. Where the trainer, its number of processes, and the project's
    class that it trains can be seen, that class is given a `configure_model` (one that has `fully_shard`
    calls is kept). Otherwise, and for Fabric, the place is left to you with the calls to write.

    What each argument becomes:

    - `auto_wrap_policy={Block}`: `fully_shard(layer, ...)` for each such layer in `configure_model`, the
      module itself last;
    - `sharding_strategy`: "SHARD_GRAD_OP" `reshard_after_forward=False`; "FULL_SHARD" nothing; hybrid
      sharding has no place in `ModelParallelStrategy`'s mesh; "NO_SHARD" is `strategy="ddp"`;
    - `cpu_offload=True`: `offload_policy=CPUOffloadPolicy()`; `mixed_precision` and a `precision` other than
      32: `mp_policy=MixedPrecisionPolicy(...)`;
    - `activation_checkpointing_policy`: `apply_activation_checkpointing` before the `fully_shard` calls;
    - `state_dict_type`: `save_distributed_checkpoint`, True for "sharded". The default differs: Lightning's
      FSDP saves "full", Fabric's "sharded", `ModelParallelStrategy` distributed;
    - `tensor_parallel_size` has to be 1: its default, "auto", would take the machines' processes for tensor
      parallelism; `data_parallel_size` has to be the number of all processes: its default is the number of
      machines.

    `isinstance(fabric.strategy, FSDPStrategy)` is false of the new strategy, without a word: what such a
    branch saves or loads is left to you.
    """
    for module, call, symbol in lightning_calls(project):
        fabric = "fabric" in symbol.name
        why = "Fabric's loop is the program's own"
        trainer = trainer_around(module, call) if not fabric else None
        used = project.resolve(module, trainer.func) if trainer is not None else None
        if trainer is not None and used is not None and is_lightning(used) and used.name.endswith(".Trainer"):
            try:
                edits = translate(project, module, call, trainer)
            except NotProvable as error:
                why = str(error)
            else:
                done = "`FSDPStrategy` becomes `ModelParallelStrategy`, and the module shards itself"
                yield finding(module, call, "FM632", done, safety=Safety.SAFE, edits=edits)
                continue
        elif not fabric:
            why = "the trainer it is given to was not found"
        message = (
            "`FSDPStrategy` wraps the module with FSDP1; FSDP2 runs under `ModelParallelStrategy`, which "
            f"leaves the sharding to your module ({why})"
        )
        yield finding(module, call, "FM630", message, remedy=_remedy(module, call, fabric=fabric))
    yield from _asked(project)
    for module in project.looked_at:
        for call in module.calls() if "strategy" in module.text else ():
            yield from _by_name(project, module, call)


def _asked(project: Project) -> Iterator[Finding]:
    """`isinstance(strategy, FSDPStrategy)`, where the new strategy is not asked for beside it."""
    for module in project.looked_at:
        for call in module.called("isinstance") if "FSDPStrategy" in module.text else ():
            asked = classes_of(call.args[1]) if len(call.args) == 2 else ()
            symbols = [project.outside(module, one) for one in asked]
            names = {s.name.rpartition(".")[2] for s in symbols if s is not None and is_lightning(s)}
            if "FSDPStrategy" in names and "ModelParallelStrategy" not in names:
                message = (
                    "an `FSDPStrategy` is asked for: `ModelParallelStrategy`, under which FSDP2 runs, is none"
                )
                yield finding(module, call, "FM633", message, remedy=_ASK)


def _by_name(project: Project, module: Module, call: ast.Call) -> Iterator[Finding]:
    symbol = project.outside(module, call.func)
    if (
        symbol is None
        or not is_lightning(symbol)
        or symbol.name.rpartition(".")[2] not in ("Trainer", "Fabric")
    ):
        return
    for keyword in call.keywords:
        named = isinstance(keyword.value, ast.Constant) and keyword.value.value in _STRATEGIES
        if keyword.arg == "strategy" and named:
            assert isinstance(keyword.value, ast.Constant)
            fabric = symbol.name.endswith("Fabric")
            if not fabric and keyword.value.value == "fsdp":
                try:
                    edits = translate(project, module, keyword.value, call)
                except NotProvable:
                    pass
                else:
                    done = '`"fsdp"` becomes `ModelParallelStrategy`, and the module shards itself'
                    yield finding(module, keyword, "FM632", done, safety=Safety.SAFE, edits=edits)
                    continue
            offload = keyword.value.value == "fsdp_cpu_offload"
            yield finding(
                module,
                keyword,
                "FM631",
                f"`strategy={module.code(keyword.value)}` wraps the module with FSDP1",
                remedy=_text({"cpu_offload": "True"} if offload else {}, {}, fabric=fabric),
            )


def _remedy(module: Module, call: ast.Call, *, fabric: bool) -> str:
    given = {k.arg: k.value for k in call.keywords if k.arg is not None}
    said = {name: module.code(node) for name, node in given.items()}
    constants = {name: node.value for name, node in given.items() if isinstance(node, ast.Constant)}
    return _text(said, constants, fabric=fabric)


def _text(said: dict[str, str], constants: Mapping[str, object], *, fabric: bool) -> str:
    """What to write instead.

    Args:
        said: argument -> its code.
        constants: argument -> its value, where it is one.
    """
    strategy = strategy_named(said.get("sharding_strategy", "FULL_SHARD").strip("'\""))
    if strategy == "NO_SHARD":
        return 'use `strategy="ddp"`: it is the same layout'
    if "device_mesh" in said or (strategy or "").startswith("HYBRID"):
        return (
            "hybrid sharding has no place in `ModelParallelStrategy`, whose mesh is (data_parallel, "
            "tensor_parallel): make a 2-D "
            "mesh (replicas, shards) with `init_device_mesh` and give it to `fully_shard(..., mesh=mesh)`"
        )
    kind = constants.get("state_dict_type", "sharded" if fabric else "full")
    arguments = ["parallelize_fn=parallelize"] if fabric else []
    arguments += ["data_parallel_size=world_size", "tensor_parallel_size=1"]
    arguments.append(f"save_distributed_checkpoint={kind == 'sharded'}")
    arguments += [f"{name}={said[name]}" for name in _PASSED_ON if name in said]
    where = "`parallelize(model, device_mesh)`" if fabric else "`configure_model`"
    mesh = "device_mesh" if fabric else "self.device_mesh"
    options = [f'mesh={mesh}["data_parallel"]']
    if strategy == "SHARD_GRAD_OP":
        options.append("reshard_after_forward=False")
    if said.get("cpu_offload", "False") not in ("False", "None"):
        options.append("offload_policy=CPUOffloadPolicy()")
    if "mixed_precision" in said:
        options.append("mp_policy=MixedPrecisionPolicy(<the dtypes of mixed_precision>)")
    units = f"every module of {said['auto_wrap_policy']}" if "auto_wrap_policy" in said else "each layer"
    steps = (
        ""
        if fabric
        else ", then `register_fsdp_forward_method(self, step)` for `training_step` and the others"
    )
    checkpointing = (
        ", after `apply_activation_checkpointing`"
        if {"activation_checkpointing", "activation_checkpointing_policy"} & set(said)
        else ""
    )
    return (
        f"use `ModelParallelStrategy({', '.join(arguments)})`, and in {where}, once, call "
        f"`fully_shard(module, {', '.join(options)})` on "
        f"{units}, and on the model last{checkpointing}{steps}; `world_size` is the number of all processes"
    )
