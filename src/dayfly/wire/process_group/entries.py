"""What a store of torch.distributed holds, and what its operations do to it: pure.

A request is a list of fields, bytes each: the operation, how long it may wait in seconds, and what
it is about. So is an answer: `ok` and what was asked for, or why there is nothing.

    set key value | add key amount | compare key expected desired | append key value |
    delete key | set-all key value ... | count | check key ... | wait key ... | get key ...

`wait` and `get` wait until all of their keys are there. Values are bytes, never looked into, save
the numbers that `add` counts, which are decimal text as in torch's own stores.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from dayfly.errors import WireError

Fields = Sequence[bytes]

OK, LATE, WRONG = b"ok", b"late", b"wrong"
_SIZE = struct.Struct("<Q")


def pack(fields: Fields) -> bytes:
    """As one message: each field's size, 8 bytes little-endian, and the field."""
    return b"".join(_SIZE.pack(len(field)) + field for field in fields)


def unpack(message: bytes) -> list[bytes]:
    """What `pack` got. Raises WireError if the message was not made by it."""
    fields, at = [], 0
    while at < len(message):
        begin = at + _SIZE.size
        size = _SIZE.unpack_from(message, at)[0] if begin <= len(message) else len(message)
        if begin + size > len(message):
            raise WireError(f"a store's message of {len(message)} bytes is cut short")
        fields.append(message[begin : begin + size])
        at = begin + size
    return fields


class Entries:
    """The dictionary."""

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}

    def answer(self, operation: bytes, about: Fields) -> list[bytes] | None:
        """Do it, once; None if it has to wait. Raises WireError if there is no such operation."""
        values = self._values
        match operation, about:
            case ((b"get" | b"wait"), keys):
                if not all(key in values for key in keys):
                    return None
                return [OK, *(values[key] for key in keys if operation == b"get")]
            case b"check", keys:
                return [OK, b"%d" % all(key in values for key in keys)]
            case b"count", []:
                return [OK, b"%d" % len(values)]
            case b"set", [key, value]:
                values[key] = value
                return [OK]
            case b"set-all", pairs if len(pairs) % 2 == 0:
                values.update(zip(pairs[::2], pairs[1::2], strict=True))
                return [OK]
            case b"append", [key, value]:
                values[key] = values.get(key, b"") + value
                return [OK]
            case b"delete", [key]:
                return [OK, b"%d" % (values.pop(key, None) is not None)]
            case b"add", [key, amount]:
                return self._add(key, int(amount))
            case b"compare", [key, expected, desired]:
                return [OK, self._compare(key, expected, desired)]
        raise WireError(f"a store is asked for {operation!r} of {len(about)} fields, unknown to it")

    def _add(self, key: bytes, amount: int) -> list[bytes]:
        try:
            total = int(self._values.get(key, b"0")) + amount
        except ValueError:
            return [WRONG, b"what is there is no number"]
        self._values[key] = b"%d" % total
        return [OK, self._values[key]]

    def _compare(self, key: bytes, expected: bytes, desired: bytes) -> bytes:
        """As torch's stores do: a key that is not there counts as empty, and is not told apart."""
        found = self._values.get(key)
        if expected == b"" if found is None else expected == found:
            self._values[key] = found = desired
        return expected if found is None else found
