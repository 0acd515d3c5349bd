"""Sharded models are found wherever they get to, and nothing is said of what is none.

Every carrier (a way for a model to get somewhere) with every hazard (code that goes wrong on an FSDP2
model) is one tiny program; its mirror has a plain, a distributed or an unrelated object in the model's place.
"""

from __future__ import annotations

import pytest
from carriers import CARRIERS
from hazards import HAZARDS
from hypothesis import given, settings
from hypothesis import strategies as st
from nesting import STEPS, nested
from orders import ORDERS
from programs import MIRRORS, SHARDED, everything, found_at, is_in_expression, ordered, program


@pytest.mark.parametrize("carrier", CARRIERS)
def test_every_hazard_is_found_where_the_model_arrives(carrier: str) -> None:
    silent = []
    for name, hazard in HAZARDS.items():
        made = program(CARRIERS[carrier], hazard, SHARDED)
        if made is not None and not found_at(made).get((made.path, made.line), set()) & hazard.codes:
            silent.append(name)
    assert silent == []


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("mirror", MIRRORS)
def test_nothing_is_said_of_what_is_no_sharded_model(mirror: str, carrier: str) -> None:
    hazards = everything(in_expression=is_in_expression(CARRIERS[carrier]))
    made = program(CARRIERS[carrier], hazards, MIRRORS[mirror])
    assert made is not None
    lines = range(made.line, made.line + hazards.text.count("\n") + 1)
    said = {line: codes for (path, line), codes in found_at(made).items() if path == made.path}
    assert {line: said[line] for line in lines if line in said} == {}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=5))
def test_carriers_can_be_nested(names: list[str]) -> None:
    carrier = nested(names)
    hazard = HAZARDS["state_dict"]
    made = program(carrier, hazard, SHARDED)
    assert made is not None
    assert "FM402" in found_at(made).get((made.path, made.line), set()), carrier["main.py"]
    plain = program(carrier, hazard, MIRRORS["plain"])
    assert plain is not None
    assert (plain.path, plain.line) not in found_at(plain), carrier["main.py"]


@pytest.mark.parametrize("order", ORDERS)
def test_an_optimizer_before_the_wrap_is_found(order: str) -> None:
    made = ordered(ORDERS[order], "FSDP")
    assert "FM504" in found_at(made).get((made.path, made.line), set())


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("other", ["DDP", "Engine"])
def test_an_optimizer_before_another_wrapper_is_none_of_ours(other: str, order: str) -> None:
    found = found_at(ordered(ORDERS[order], other))
    assert found  # of the wrap that has nothing to do with it
    assert "FM504" not in set[str]().union(*found.values())
