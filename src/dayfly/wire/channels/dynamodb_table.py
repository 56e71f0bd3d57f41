"""A DynamoDB table as this channel uses it: its shape, its requests, and what its errors come to.

    box (partition key)                        name (sort key)      and
    run                                        000002               senders, open       the marker
    run/000002/to-3                            000000012.part.0     data, bytes, parts, nonce
    run/000002/to-3/000000012.part.0/<nonce>   0000                 data                its parts

Every item has `expires`, in Unix seconds, after which DynamoDB removes it by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

from dayfly.errors import RequestError, WireError
from dayfly.wire.outages import Trouble

#: Payload bytes of one item: 400 KB is its bound, with all names and keys.
ITEM_BYTES = 390 * 1024
#: Most items of a request that reads, and of one that writes.
READS, WRITES = 100, 25
#: Items with payload in one request, so that little is held at once.
PARTS = 10

_SCHEMA = {"box": "HASH", "name": "RANGE"}
_PASSING = {
    "ProvisionedThroughputExceededException",
    "ThrottlingException",
    "Throttling",
    "RequestLimitExceeded",
    "LimitExceededException",
    "TransactionConflictException",
    "InternalServerError",
    "ServiceUnavailable",
    "RequestTimeout",
}
_DENIED = {
    "AccessDeniedException",
    "UnrecognizedClientException",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationTokenException",
    "MissingAuthenticationToken",
    "SignatureDoesNotMatch",
    "ExpiredTokenException",
    "ExpiredToken",
}

Item = dict[str, dict[str, Any]]
#: What an item is found by: box and name.
Address = tuple[str, str]
#: An item to store or to remove, as the request has it.
Write = dict[str, dict[str, Item]]


class Busy(Exception):
    """The table is being made, or took, or gave, only some of what was asked for."""


def create_command(table: str) -> str:
    """The commands that make a table of the right shape."""
    return (
        f"aws dynamodb create-table --table-name {table} --billing-mode PAY_PER_REQUEST "
        "--attribute-definitions AttributeName=box,AttributeType=S "
        "AttributeName=name,AttributeType=S --key-schema AttributeName=box,KeyType=HASH "
        "AttributeName=name,KeyType=RANGE && "
        f"aws dynamodb wait table-exists --table-name {table} && {expiry_command(table)}"
    )


def expiry_command(table: str) -> str:
    """The command after which DynamoDB removes what has expired."""
    return (
        f"aws dynamodb update-time-to-live --table-name {table} "
        "--time-to-live-specification Enabled=true,AttributeName=expires"
    )


def check_installed() -> None:
    """Raise RequestError if boto3 is missing."""
    if find_spec("botocore") is None:
        raise RequestError("DynamoDB needs boto3: pip install boto3")


class DynamoTable:
    """A table's requests, each once: whoever calls tries again. Safe from any thread.

    Args:
        connections: requests at once.
    """

    def __init__(self, name: str, connections: int) -> None:
        # Here, as it is optional, and takes long to import.
        from botocore.config import Config
        from botocore.session import Session

        self.name = name
        config = Config(
            retries={"total_max_attempts": 1},
            connect_timeout=5,
            read_timeout=20,
            max_pool_connections=connections,
        )
        session = Session()
        session.register_component("data_loader", _descriptions())
        self._client = session.create_client("dynamodb", config=config)

    def check(self) -> None:
        """Raise WireError, with the command that helps, unless the table is as it has to be."""
        described = self._client.describe_table(TableName=self.name)["Table"]
        schema = {key["AttributeName"]: key["KeyType"] for key in described["KeySchema"]}
        types = {
            one["AttributeName"]: one["AttributeType"] for one in described["AttributeDefinitions"]
        }
        if schema != _SCHEMA or any(types[name] != "S" for name in _SCHEMA):
            raise WireError(
                f"table {self.name} has another key than box and name, both texts: give another "
                f"name, and make it with: {create_command(self.name)}"
            )
        if described["TableStatus"] not in ("ACTIVE", "UPDATING"):
            raise Busy
        expiry = self._client.describe_time_to_live(TableName=self.name)["TimeToLiveDescription"]
        enabled = expiry["TimeToLiveStatus"] in ("ENABLED", "ENABLING")
        if not enabled or expiry.get("AttributeName") != "expires":
            raise WireError(
                f"table {self.name} would keep for ever what a killed worker leaves: "
                f"{expiry_command(self.name)}"
            )

    def put_new(self, item: Item) -> bool:
        """Store an item unless its address is taken; whether it was stored."""
        try:
            self._client.put_item(
                TableName=self.name,
                Item=item,
                ConditionExpression="attribute_not_exists(#box)",
                ExpressionAttributeNames={"#box": "box"},
            )
        except self._client.exceptions.ConditionalCheckFailedException:
            return False
        return True

    def put(self, item: Item) -> None:
        """Store an item, in place of an earlier one."""
        self._client.put_item(TableName=self.name, Item=item)

    def get(self, at: Address) -> Item | None:
        """The item at an address, as it is now."""
        answer = self._client.get_item(TableName=self.name, Key=_key(at), ConsistentRead=True)
        found: Item | None = answer.get("Item")
        return found

    def get_all(
        self, at: Sequence[Address], fields: Sequence[str] = ()
    ) -> tuple[list[Item], list[Address]]:
        """Those items that are there, in any order, and where to ask again, for want of capacity.

        Args:
            fields: only these.
        """
        wanted: dict[str, Any] = {"Keys": [_key(one) for one in at], "ConsistentRead": True}
        if fields:
            wanted |= _only(fields)
        answer = self._client.batch_get_item(RequestItems={self.name: wanted})
        items: list[Item] = answer["Responses"].get(self.name, [])
        left = answer.get("UnprocessedKeys", {}).get(self.name, {}).get("Keys", [])
        return items, [address_of(key) for key in left]

    def write(self, requests: Sequence[Write]) -> list[Write]:
        """Store and remove up to 25 items, unconditionally. Returns what is left, likewise."""
        answer = self._client.batch_write_item(RequestItems={self.name: list(requests)})
        left: list[Write] = answer.get("UnprocessedItems", {}).get(self.name, [])
        return left

    def query(self, box: str, fields: Sequence[str]) -> Iterator[Item]:
        """All items of a box, sorted by name."""
        pages = self._client.get_paginator("query").paginate(
            TableName=self.name,
            ConsistentRead=True,
            KeyConditionExpression="#box = :box",
            ExpressionAttributeValues={":box": {"S": box}},
            **_only(["box", *fields]),
        )
        for page in pages:
            yield from page["Items"]

    def text(self, item: Item, name: str) -> str:
        """An item's text. Raises WireError for an item that no channel wrote."""
        return str(self._value(item, name, "S", str))

    def number(self, item: Item, name: str) -> int:
        """An item's whole number, from 0. Raises WireError likewise."""
        found = str(self._value(item, name, "N", str))
        if not (found.isascii() and found.isdecimal()):
            raise self._malformed(item, name)
        return int(found)

    def blob(self, item: Item, name: str) -> memoryview:
        """An item's bytes. Raises WireError likewise."""
        return memoryview(self._value(item, name, "B", bytes))

    def _value(self, item: Item, name: str, kind: str, of: type) -> Any:
        found = item.get(name, {}).get(kind)
        if not isinstance(found, of):
            raise self._malformed(item, name)
        return found

    def _malformed(self, item: Item, name: str) -> WireError:
        return WireError(
            f"table {self.name}: the item {'/'.join(address_of(item))} has no {name} as dayfly "
            "writes it: another program writes there; give another table"
        )

    def close(self) -> None:
        """Let go of the connections."""
        self._client.close()


def trouble_of(error: Exception, table: str) -> Trouble | None:
    """What one of boto3's errors comes to, without secrets; None if it is not one of them."""
    from botocore import exceptions

    if isinstance(error, Busy):
        return Trouble("it has too much to do", passing=True)
    if isinstance(error, exceptions.ClientError):
        code = str(error.response["Error"].get("Code", ""))
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        if code == "ResourceNotFoundException":
            return Trouble(f"there is no such table; make it: {create_command(table)}", False)
        if code in _DENIED:
            text = f"access is denied ({code}): check the credentials and their policy"
            return Trouble(text, passing=False)
        passing = code in _PASSING or status >= 500
        return Trouble(f"it {'does not answer' if passing else 'refuses'} ({code})", passing)
    if isinstance(error, (exceptions.NoCredentialsError, exceptions.PartialCredentialsError)):
        return Trouble(
            "no credentials were found: give AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the "
            "environment, or a profile",
            passing=False,
        )
    if isinstance(error, exceptions.NoRegionError):
        return Trouble("set AWS_DEFAULT_REGION to the table's region", passing=False)
    if isinstance(error, (exceptions.HTTPClientError, exceptions.ConnectionError)):
        return Trouble(f"it does not answer ({type(error).__name__})", passing=True)
    if isinstance(error, exceptions.BotoCoreError):
        return Trouble(f"its client refuses ({type(error).__name__})", passing=False)
    return None


@cache
def _descriptions() -> Any:
    """The descriptions of services, kept: to read them takes most of the time to make a client."""
    from botocore.loaders import create_loader

    return create_loader()


def storing(item: Item) -> Write:
    """A request to store an item."""
    return {"PutRequest": {"Item": item}}


def removing(at: Address) -> Write:
    """A request to remove what is at an address, if anything."""
    return {"DeleteRequest": {"Key": _key(at)}}


def address_of(item: Item) -> Address:
    """Where an item is."""
    return item["box"]["S"], item["name"]["S"]


def _key(at: Address) -> Item:
    return {"box": {"S": at[0]}, "name": {"S": at[1]}}


def _only(fields: Sequence[str]) -> Mapping[str, Any]:
    """Some of the names are words of DynamoDB's own language, so all go by a stand-in."""
    names = {f"#{field}": field for field in dict.fromkeys(fields)}
    return {"ProjectionExpression": ", ".join(names), "ExpressionAttributeNames": names}
