"""What goes where: each tensor and value of a source gets one place in the output, or a reason why not.

Pure. Nothing here opens a file, except that the bytes of tied tensors are compared by the caller first
(`unequal_ties`). Key names follow `torch.distributed.checkpoint.state_dict` (`get_model_state_dict`,
`get_optimizer_state_dict`) and `torch.distributed.checkpoint._nested_dict.flatten_state_dict`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from checkpoint_convert.casting import CASTABLE
from checkpoint_convert.errors import LayoutError, UnsupportedError
from checkpoint_convert.items import Items, LeftOut, SharedItem, TensorItem
from checkpoint_convert.model import (
    Contents,
    DType,
    Notice,
    SourceFormat,
    TensorSource,
)
from checkpoint_convert.optim_groups import OLD_GROUPS
from checkpoint_convert.optim_items import optimizer_values
from checkpoint_convert.places import stored_keys
from checkpoint_convert.readers.resolve import OPAQUE_EXTRA
from checkpoint_convert.tied import first_names
from checkpoint_convert.values import Leaf, dotted, leaves, module_of_state
from checkpoint_convert.write_options import (
    MODEL_KEY,
    OPTIM_KEY,
    OutputFormat,
    Part,
    Preset,
    TiedPolicy,
    WriteOptions,
)

NOT_CARRIED = "CK201"
TIED_DIFFER = "CK202"
DTYPE_KEPT = "CK203"


class _Draft:
    """Collects items while the plan is made."""

    def __init__(self) -> None:
        self.tensors: list[TensorItem] = []
        self.shared: list[SharedItem] = []
        self.objects: list[Leaf] = []
        self.left_out: list[LeftOut] = []
        self.notices: list[Notice] = []

    def add(self, leaf: Leaf) -> None:
        """Give one thing its place."""
        path, value = leaf.path, leaf.value
        if leaf.refusal:
            self.left_out.append(LeftOut(path, leaf.refusal))
            if isinstance(path[-1], int):  # a list keeps its length, or torch cannot read it
                self.objects.append(Leaf(path, None))
        elif leaf.tensor is not None:
            self.tensors.append(TensorItem(path, leaf.tensor, leaf.tensor.dtype))
        else:
            self.objects.append(Leaf(path, value))

    def finish(self, options: WriteOptions) -> Items:
        """Give model and optimizer their keys, check that no two things share a place, and freeze."""
        items = Items(
            tuple(self.tensors), tuple(self.shared), tuple(self.objects), tuple(self.left_out), ()
        ).under_keys(options.model_key, options.optim_key)
        paths = [item.path for item in items.tensors]
        paths += [item.path for item in items.shared]
        paths += [leaf.path for leaf in items.objects]
        stored = stored_keys(items, options.preset)
        places = Counter(place for path in paths for place in stored(path))
        twice = [place for place, count in places.items() if count > 1]
        if twice:
            raise LayoutError(
                f"two things of the source would get the same key {twice[0]!r}",
                hint="write one part at a time with --only, or rename the key in the source",
            )
        return replace(items, notices=(*self.notices, *_not_carried(items.left_out)))


def _not_carried(left_out: Sequence[LeftOut]) -> Iterator[Notice]:
    """One notice per reason, for all that was not left out on request."""
    names: dict[str, list[str]] = {}
    for item in left_out:
        if not item.reason.startswith("--"):
            names.setdefault(item.reason, []).append(dotted(item.path))
    for reason, keys in names.items():
        yield Notice(NOT_CARRIED, f"not in the output: {', '.join(keys)} ({reason})")


def plan_items(contents: Contents, options: WriteOptions, *, unequal_ties: Collection[str] = ()) -> Items:
    """Give every tensor and value of a source its place in the output.

    Args:
        unequal_ties: names said to be tied whose bytes were found to differ from the first name's.

    Raises:
        UnsupportedError: an option that does not fit the source.
        LayoutError: two things would get the same place.
    """
    draft = _Draft()
    # What is left behind or filled in is said here, with what becomes of it.
    said = (OPAQUE_EXTRA, OLD_GROUPS)
    draft.notices.extend(notice for notice in contents.notices if notice.code not in said)
    _check_parts(contents, options)
    _check_keys(options)
    if options.only is not Part.OPTIM:
        _model_items(draft, contents, options, frozenset(unequal_ties))
    else:
        draft.left_out += [LeftOut(("model", name), "--only optim") for name in contents.model]
    _optimizer_items(draft, contents, options)
    _extra_items(draft, contents, options)
    return draft.finish(options)


def _check_parts(contents: Contents, options: WriteOptions) -> None:
    if options.only is Part.OPTIM and contents.optimizer is None:
        raise UnsupportedError(
            f"--only optim: the source ({contents.format.value}) holds no optimizer state",
            hint="name the optimizer's file as well, or leave --only out",
        )
    if options.only is Part.MODEL and not contents.model:
        raise UnsupportedError(
            f"--only model: the source ({contents.format.value}) holds no model",
            hint="name the model's file as well, or leave --only out",
        )
    if not contents.model and contents.optimizer is None and not contents.extras:
        raise UnsupportedError("the source holds neither a model nor optimizer state")
    linkable = options.to is OutputFormat.DCP and contents.format is SourceFormat.DCP
    if options.link and (not linkable or options.shards is not None):
        raise UnsupportedError(
            "--link shares the files of a DCP directory with a new one; it cannot change their layout",
            hint="leave --link out",
        )
    if options.preset is not Preset.TORCH and (options.to is not OutputFormat.DCP or options.link):
        raise UnsupportedError(
            f"--layout {options.preset.value} is a form of DCP directories that are written anew",
            hint="leave --layout, or --to and --link, out",
        )
    if options.shards is not None and (options.to is not OutputFormat.DCP or options.shards < 1):
        raise UnsupportedError(
            "--shards N lays out a DCP directory for N ranks, N at least 1", hint="leave --shards out"
        )


def _check_keys(options: WriteOptions) -> None:
    keys = {"--model-key": options.model_key, "--optim-key": options.optim_key}
    for option, key in keys.items():
        if not key or "." in key:
            raise UnsupportedError(
                f"{option}: {key!r} is no top-level key", hint="give a name without dots, such as optimizer"
            )
    if options.model_key == options.optim_key:
        raise UnsupportedError(
            f"model and optimizer cannot both have the key {options.model_key!r}",
            hint="give --model-key and --optim-key different names",
        )
    if options.to is OutputFormat.SAFETENSORS and tuple(keys.values()) != (MODEL_KEY, OPTIM_KEY):
        raise UnsupportedError(
            f"{' and '.join(keys)} name the top-level keys of --to dcp and --to torch; "
            "safetensors files have none",
            hint="leave them out",
        )


def _model_items(draft: _Draft, contents: Contents, options: WriteOptions, unequal: frozenset[str]) -> None:
    firsts = first_names(contents, unequal)
    if options.tied_policy is TiedPolicy.ERROR and (firsts or unequal):
        name = next(iter([*firsts, *sorted(unequal)]))
        raise UnsupportedError(
            f"--tied error: {name} and {firsts.get(name, contents.aliases.get(name))} are tied",
            hint="--tied keep writes both names, --tied first only the first",
        )
    if unequal:
        names = ", ".join(f"{name} and {contents.aliases[name]}" for name in sorted(unequal))
        draft.notices.append(
            Notice(
                TIED_DIFFER,
                f"tied in the model, but of different values in the source: {names}; both written",
            )
        )
    kept: list[str] = []
    # In a safetensors file no two names can share bytes: kept names are written twice.
    twice = options.to is OutputFormat.SAFETENSORS and options.tied_policy is TiedPolicy.KEEP
    for name in [*contents.model, *(name for name in contents.aliases if name not in contents.model)]:
        first = firsts.get(name)
        if first is None or twice:
            source = contents.model[first or name]
            dtype = _model_dtype(source, options.dtype, kept, name)
            draft.tensors.append(TensorItem(("model", name), source, dtype))
        elif options.tied_policy is TiedPolicy.FIRST:
            draft.left_out.append(LeftOut(("model", name), f"--tied first: same tensor as {first}"))
        else:
            draft.shared.append(SharedItem(("model", name), ("model", first)))
    if kept:
        draft.notices.append(
            Notice(DTYPE_KEPT, f"--dtype does not apply to {', '.join(kept)}: kept as in the source")
        )


def _model_dtype(source: TensorSource, wanted: DType | None, kept: list[str], name: str) -> DType:
    if wanted is None or source.dtype is wanted:
        return source.dtype
    if source.dtype in CASTABLE:
        return wanted
    if "float" in source.dtype.torch_name:
        kept.append(f"{name} ({source.dtype.torch_name})")
    return source.dtype


def _optimizer_items(draft: _Draft, contents: Contents, options: WriteOptions) -> None:
    if contents.optimizer is None:
        return
    values = optimizer_values(contents, fill_missing=options.fill_optim_state)
    if options.only is Part.MODEL:
        draft.left_out += [LeftOut(leaf.path, "--only model") for leaf in values.leaves]
        return
    draft.notices.extend(values.notices)
    for leaf in values.leaves:
        is_plain_state = leaf.tensor is None and leaf.path[:2] == ("optim", "state") and len(leaf.path) > 2
        if is_plain_state and options.to is OutputFormat.SAFETENSORS:
            draft.left_out.append(LeftOut(leaf.path, "safetensors holds an optimizer's tensors only"))
        else:
            draft.add(leaf)


def _extra_items(draft: _Draft, contents: Contents, options: WriteOptions) -> None:
    for key, value in contents.extras.items():
        in_torch_file = options.to is OutputFormat.TORCH or options.preset is Preset.LIGHTNING
        name = module_of_state(key)
        if name is not None and options.only is not Part.OPTIM and options.to is not OutputFormat.SAFETENSORS:
            for leaf in leaves((MODEL_KEY, name), value, keep_integer_keys=options.to is OutputFormat.TORCH):
                draft.add(leaf)
            continue
        for leaf in leaves((str(key),), value, keep_integer_keys=in_torch_file):
            if options.only is not None:
                draft.left_out.append(LeftOut(leaf.path, f"--only {options.only.value}"))
            elif options.to is OutputFormat.SAFETENSORS:
                draft.left_out.append(LeftOut(leaf.path, "safetensors holds tensors of a model only"))
            elif options.preset is Preset.ACCELERATE:
                draft.left_out.append(LeftOut(leaf.path, "accelerate keeps such things in other files"))
            elif leaf.path[0] in (MODEL_KEY, OPTIM_KEY, options.model_key, options.optim_key):
                draft.add(Leaf((f"source_{leaf.path[0]}", *leaf.path[1:]), leaf.value, leaf.refusal))
            else:
                draft.add(leaf)
