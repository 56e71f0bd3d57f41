"""What the suite calls things."""

from dayfly.wire.channels.base import Namespace

NAMESPACE = Namespace("run", 0)
#: Ranks that may send in the suite.
SENDERS = 12
#: Of the suite's coordinator.
TOKEN = "5e" * 32
