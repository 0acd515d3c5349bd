"""What one helper module is to offer, and what follows from that."""

from __future__ import annotations

from dataclasses import dataclass

from codemods.torch_names import PUBLIC_FROM

KEYWORDS = {
    "process_group": "ProcessGroup | tuple[ProcessGroup, ProcessGroup] | None = None",
    "sharding_strategy": "ShardingStrategy | None = None",
    "cpu_offload": "CPUOffload | None = None",
    "auto_wrap_policy": "WrapPolicy | None = None",
    "mixed_precision": "MixedPrecision | None = None",
    "ignored_modules": "Iterable[nn.Module] | None = None",
    "param_init_fn": "Callable[[nn.Module], None] | None = None",
    "device_id": "int | torch.device | None = None",
    "sync_module_states": "bool = False",
    "forward_prefetch": "bool = False",
    "ignored_states": "Iterable[nn.Parameter | nn.Module] | None = None",
    "device_mesh": "DeviceMesh | None = None",
    "is_root": "bool = True",
}
"""Keywords of `shard_model` and their types: FSDP1's names, so that dictionaries of them stay."""

FIELDS = frozenset(
    {"buffer_dtype", "cast_forward_inputs", "cast_root_forward_inputs", "_module_classes_to_ignore"}
    | {"keep_low_precision_grads"}
)
"""Fields of `MixedPrecision` that `shard_model` heeds only where they are in use."""


@dataclass(frozen=True, slots=True)
class Draft:
    """What one helper module is to offer.

    Attributes:
        names: functions and types that the repository names.
        keywords: of `shard_model`; `**` for keywords not known until run time; `parts` where parts are
            sharded before it is known what is sharded around them; `own:...` those that policies give single
            units.
        fields: of `MixedPrecision`; `batch_norm` where the repository has such layers.
        torch: the oldest torch it must run on.
    """

    names: frozenset[str]
    keywords: frozenset[str]
    fields: frozenset[str]
    torch: tuple[int, int] = PUBLIC_FROM

    def has(self, *keywords: str) -> bool:
        """Whether `shard_model` takes one of these keywords."""
        unknown = "**" in self.keywords
        return any(k in self.keywords or (unknown and k in KEYWORDS and k != "is_root") for k in keywords)

    @property
    def used(self) -> list[str]:
        """Its keywords, in FSDP1's order."""
        return [keyword for keyword in KEYWORDS if self.has(keyword)]

    @property
    def own(self) -> list[str]:
        """What policies give single units."""
        return [keyword for keyword in KEYWORDS if f"own:{keyword}" in self.keywords]

    @property
    def chooses_mesh(self) -> bool:
        """Whether a device, a strategy or a group decides the mesh, rather than `fully_shard` by itself."""
        return self.has("sharding_strategy", "process_group", "device_id")

    @property
    def knows_parts(self) -> bool:
        """Whether parts may be sharded before it is known what is sharded around them."""
        return "parts" in self.keywords and self.has("mixed_precision")

    @property
    def needs_device(self) -> bool:
        return self.chooses_mesh or self.has("sync_module_states", "param_init_fn")

    @property
    def ignores(self) -> bool:
        return self.has("ignored_modules", "ignored_states")

    @property
    def takes_out(self) -> bool:
        """Whether ignored parameters are hidden from `fully_shard`, which before torch 2.7 cannot be told."""
        return self.ignores and self.torch < (2, 7)

    @property
    def keeps_precision(self) -> bool:
        """Whether classes are kept in full precision: FSDP1 did so only with a policy."""
        if not self.has("auto_wrap_policy") or not self.has("mixed_precision"):
            return False
        return bool(self.fields & {"batch_norm", "_module_classes_to_ignore"})

    @property
    def casts_buffers(self) -> bool:
        return "buffer_dtype" in self.fields and self.has("mixed_precision")

    @property
    def names_mesh(self) -> bool:
        """Whether the broadcast goes over the mesh's groups, so that the mesh needs a name."""
        return self.has("sync_module_states") and self.has("process_group", "device_mesh")
