"""What torch's errors about FSDP2 mean to someone who comes from FSDP1; pure.

Messages are those of torch 2.1 to 2.14; where a message is not known, nothing is said.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KnownError:
    """An error's pattern, what it means here, and what to do."""

    pattern: re.Pattern[str]
    meaning: str


def _known(pattern: str, meaning: str) -> KnownError:
    return KnownError(re.compile(pattern, re.IGNORECASE), meaning)


_KNOWN = (
    _known(
        r"overlapping meshes|Invariant encountered|root mesh.*sub.?mesh",
        "fully_shard was called on a module before it was called on a module inside it: go through "
        "reversed(list(model.modules())), children before parents",
    ),
    _known(
        r"shared parameter|multiple (FSDP )?(param )?groups|fully_shard\(\[",
        "tied weights are in two units: leave both to the root, or shard them as one group, "
        "fully_shard([a, b])",
    ),
    _known(
        r"Each distinct FSDP|fully_shard has already been applied|twice",
        "fully_shard was called twice on the same module: once per module",
    ),
    _known(
        r"fully_shard does not support containers",
        "a ModuleList or ModuleDict has no forward of its own: call fully_shard on the modules in it",
    ),
    _known(
        r"'FSDP\w+' object has no attribute 'clip_grad_norm_'",
        "FSDP2 has no clip_grad_norm_ method: call torch.nn.utils.clip_grad_norm_(model.parameters(), "
        "max_norm)",
    ),
    _known(
        r"'FSDP\w+' object has no attribute 'no_sync'",
        "FSDP2 has no no_sync: call model.set_requires_gradient_sync(is_last) before each backward pass",
    ),
    _known(
        r"'FSDP\w+' object has no attribute '(_fsdp_wrapped_module|module)'",
        "fully_shard changes the model in place and wraps nothing: the model itself is what .module was",
    ),
    _known(
        r"'FSDP\w+' object has no attribute '(_handle|_flat_param|sharding_strategy|mixed_precision|"
        r"process_group|params)'",
        "FSDP2 modules have no FSDP1 internals: keep such settings yourself, or ask the device mesh",
    ),
    _known(
        r"unsupported format string passed to (DTensor|Tensor|AsyncCollectiveTensor).__format__",
        "the norm that clip_grad_norm_ returns is a DTensor under FSDP2: take .full_tensor() of it, on every "
        "rank, before it is formatted",
    ),
    _known(
        r"'Tensor' object has no attribute 'full_tensor'",
        "a norm or a parameter is no DTensor there: clip_grad_norm_ found no gradient at all (zero_grad() "
        "came between the backward pass and it, or set_requires_gradient_sync or set_requires_all_reduce is "
        "off), or the model is not sharded",
    ),
    _known(
        r"must have the same mesh",
        "parameters lie on different meshes, and a norm or an optimizer takes them together: give every "
        "fully_shard call the same mesh (without one it makes a mesh of all ranks); where layers are tensor "
        "parallel, take the norm mesh by mesh, as the clip_grad_norm_ of rewrite's helper module does",
    ),
    _known(
        r"c10d\.\w+(\.\w+)? does not have a sharding strategy",
        "a collective was called on a DTensor: a norm that clip_grad_norm_ returned is whole on every rank "
        "after .full_tensor(), and needs no reduction; of a parameter or gradient give its .to_local()",
    ),
    _known(
        r"\.numpy\(\) is not supported for tensor subclasses",
        "a DTensor has no .numpy(): take its .full_tensor() first, on every rank, or .to_local() for this "
        "rank's part, which is what FSDP1 showed",
    ),
    _known(
        r"assign a gradient (with|of) dtype",
        "a unit whose parameters were all frozen at its first forward pass is trained later: before torch "
        "2.14 FSDP2 settles then what dtype gradients get, so freeze it after its first forward pass. FSDP1 "
        "on one rank says it of no_sync in low precision: take two",
    ),
    _known(
        r"mesh_dim_names",
        "a mesh of two dimensions needs names: init_device_mesh(..., mesh_dim_names=('replicate', 'shard'))",
    ),
    _known(
        r"'Stream' object has no attribute '(record|wait)_event'",
        "FSDP2 runs on CPUs with torch 2.7 and later: rehearse with such a torch, or run on GPUs",
    ),
    _known(
        r"cannot import name '(fully_shard|FSDPModule|MixedPrecisionPolicy|CPUOffloadPolicy)' from "
        r"'torch.distributed",
        "FSDP2 has these names with torch 2.6 and later: record the original with this torch (verify SCRIPT "
        "--record DIR), and compare with a newer one",
    ),
    _known(
        r"^KeyError: \d+$",
        "if get_optimizer_state_dict raises it: the optimizer holds a parameter that the model has no more, "
        "because it was built before fully_shard, or the parameter was replaced after it",
    ),
    _known(
        r"KeyError: 'param_groups\.",
        "the state was saved of an optimizer whose groups have a setting that those of this one lack; "
        "initial_lr is written by a scheduler: build it before set_optimizer_state_dict",
    ),
    _known(
        r"KeyError: None|state_dict_type",
        "FSDP.state_dict_type knows nothing of FSDP2 models: use get_model_state_dict and "
        "set_model_state_dict",
    ),
    _known(
        r"(mat|m)1 and (mat|m)2 (must|to) have the same dtype|mixed dtype \(CPU\)|"
        r"expected scalar type \w+ but found|Input type \(.*\) and (weight|bias) type \(.*\) should be",
        "an input or a buffer is in another dtype than the weights: FSDP1 cast buffers to buffer_dtype, "
        "FSDP2 does not; and a unit without the mp_policy of the others hands them inputs that they do "
        "not cast",
    ),
    _known(
        r"SyncBatchNorm expected input tensor to be on",
        "torch's SyncBatchNorm runs on GPUs alone: a rehearsal of a script that names cuda (--device cpu) "
        "computes it, other scripts need GPUs",
    ),
    _known(
        r"EADDRINUSE|address already in use",
        "another process listens on the port that the script names, perhaps an earlier run of it: end that "
        "process, or let the script take MASTER_ADDR and MASTER_PORT (init_method='env://')",
    ),
    _known(
        r"mesh should not be bigger than|world size .{0,40}(must|should|does not|not) |"
        r"expected world.?size|not divisible by.*world",
        "the script is written for another number of processes: give --nproc what it expects",
    ),
    _known(
        r"re-initialize CUDA in forked|CUDA error: initialization error",
        "the process that ranks are forked from has touched the GPU: --no-preload starts each of them in an "
        "interpreter of its own",
    ),
    _known(
        r"OutOfMemoryError|out of memory|can't allocate memory",
        "the job ran out of memory: the probes keep a copy of the gradients; use a smaller "
        "model or batch, or "
        "more processes",
    ),
    _known(
        r"deepcopy|object layout differs",
        "a model cannot be copied after fully_shard, nor can some classes be sharded: copy it before",
    ),
)
_MIXED = re.compile(r"mixed torch\.Tensor and DTensor")
_IN_PLACE = re.compile(r"aten\.(_foreach_\w+|\w+)_\.\w+ got mixed")
"""Averages, copies, clamps: what is done with parameters outside of a forward pass."""
_MIXED_IN = (  # patterns of tracebacks; the last is of all others
    (
        "load_state_dict",
        "whole tensors are loaded into sharded parameters: use set_model_state_dict(model, state, "
        "options=StateDictOptions(full_state_dict=True)), or load before fully_shard",
    ),
    (
        r"torch/optim/(?!(optimizer|lr_scheduler)\.py)",
        "the optimizer holds plain and sharded parameters in one group: put those that FSDP ignores into a "
        "parameter group of their own",
    ),
    (
        r"torch/optim/optimizer\.py",
        "the optimizer is not torch's, and makes state that is no DTensor (torch.zeros(p.shape), means over "
        "a dimension): make it with zeros_like of the parameter, compute with p.to_local() and "
        "p.grad.to_local() where it looks at each element by itself, or take one that knows DTensors",
    ),
    (
        "clip_grad",
        "plain and sharded parameters are clipped in one call: clip each kind by one total norm, or by "
        "clip_grad_value_ in a call of its own",
    ),
    (
        "",
        "parameters were used without the hooks that gather them: call the module itself, not .forward() or "
        "another method, or register it with register_fsdp_forward_method(model, name)",
    ),
)


def meaning(text: str, traceback: str) -> str:
    """What an exception (`Type: message`) with its traceback means for a migration; "" when not known."""
    if text.strip() == "AssertionError:" and "torch/distributed/tensor/_dispatch.py" in traceback:
        return (
            "a plain tensor is changed in place by a DTensor (total += p.grad.norm()): take .full_tensor() "
            "of it, on every rank, or compute with .to_local() where the ranks' parts are summed afterwards"
        )
    where = next(words for place, words in _MIXED_IN if re.search(place, traceback))
    if _IN_PLACE.search(text) and where is _MIXED_IN[-1][1]:
        return (
            "a sharded parameter meets one that is whole: a list made before fully_shard, a model that is "
            "not sharded, or one that stays gathered after a forward pass without gradients until its next "
            "backward pass (call its reshard() after evaluation)"
        )
    if _MIXED.search(text):
        return where
    return next((known.meaning for known in _KNOWN if known.pattern.search(text)), "")
