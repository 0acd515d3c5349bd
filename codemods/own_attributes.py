"""Attributes that classes of the project itself have under a name of FSDP1's, in a sharding of their own.
Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from codemods.analysis.module import Module
from codemods.project import Project
from codemods.subclass_calls import is_in_heir


def own_attributes(project: Project, names: Iterable[str], modules: Iterable[Module] = ()) -> frozenset[str]:
    """Those of some names that a class which does not derive from FSDP1's wrapper sets itself:
    `self.flat_param = torch.cat(parts)`. Taken from an object whose origin was not found they say nothing.

    Args:
        modules: where to look for such classes; in all if there is none.
    """
    return frozenset(
        name
        for name in names
        if any(
            isinstance(one.ctx, ast.Store)
            and ast.unparse(one.value) == "self"
            and home.class_of(one) is not None
            and not is_in_heir(project, home, one)
            for home in modules or project.looked_at
            for one in home.attributes(name)
        )
    )
