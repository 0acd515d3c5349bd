"""JSON with places."""

from __future__ import annotations

import json
import re
from json.decoder import JSONDecoder

from codemods.configuration.tree import Entry, Items, Mapping, Node, Scalar
from codemods.model import Span

_SPACE = re.compile(r"[ \t\r\n]*")
_ATOM = re.compile(r"-?\d[\d.eE+-]*|true|false|null|-?Infinity|NaN")
_DEEPEST = 200
_DECODER = JSONDecoder()


def read_json(text: str) -> Node:
    """The value of a JSON text.

    Raises:
        ValueError: it is no JSON; the message names line and column.
    """
    node, end = _value(text, _skip(text, 0), 0)
    end = _skip(text, end)
    if end != len(text):
        raise json.JSONDecodeError("more text after the value", text, end)
    return node


def _skip(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    assert found is not None
    return found.end()


def _value(text: str, start: int, depth: int) -> tuple[Node, int]:
    if depth > _DEEPEST:
        raise json.JSONDecodeError("nested too deep", text, start)
    match text[start : start + 1]:
        case '"':
            value, end = _DECODER.raw_decode(text, start)
            return Scalar(value, Span(start, end)), end
        case "{":
            return _mapping(text, start, depth)
        case "[":
            return _items(text, start, depth)
    found = _ATOM.match(text, start)
    if found is None:
        raise json.JSONDecodeError("a value is missing", text, start)
    return Scalar(json.loads(found.group()), Span(start, found.end())), found.end()


def _mapping(text: str, start: int, depth: int) -> tuple[Mapping, int]:
    entries: list[Entry] = []
    position = _skip(text, start + 1)
    while text[position : position + 1] != "}":
        if entries:
            position = _skip(text, _expect(text, position, ","))
        _expect(text, position, '"')
        key, key_end = _DECODER.raw_decode(text, position)
        colon = _expect(text, _skip(text, key_end), ":")
        node, end = _value(text, _skip(text, colon), depth + 1)
        entries.append(Entry(key, Span(position, key_end), node))
        position = _skip(text, end)
    return Mapping(tuple(entries), Span(start, position + 1), flow=True), position + 1


def _items(text: str, start: int, depth: int) -> tuple[Items, int]:
    items: list[Node] = []
    position = _skip(text, start + 1)
    while text[position : position + 1] != "]":
        if items:
            position = _skip(text, _expect(text, position, ","))
        node, end = _value(text, position, depth + 1)
        items.append(node)
        position = _skip(text, end)
    return Items(tuple(items), Span(start, position + 1)), position + 1


def _expect(text: str, position: int, wanted: str) -> int:
    if text[position : position + 1] != wanted:
        raise json.JSONDecodeError(f"`{wanted}` is missing", text, position)
    return position + 1
