"""The papers' closed forms of one all-reduce, in seconds; exact in virtual time as each says."""

from __future__ import annotations


def k_reduce_s(
    size_bytes: float, world_size: int, aggregators: int, bytes_per_s: float, latency_s: float
) -> float:
    """Seconds by FasDL equation 1 (a to c), corrected, with the latencies that it leaves out.

    FasDL: S/w + (W-1)/K S/w + S/(Kw) + S/w, where S = size_bytes, W = world_size, K = aggregators,
    w = bytes_per_s of a worker, each way. It lets an aggregator upload its own shard to itself, and
    download its own sum: for K > 1 the upload of the aggregators, which decides when they begin to
    aggregate, is S/(Kw) shorter; for K = W, where nobody is anything else, so is the last download.
    Four phases pay latency_s each. Exact in virtual time if K divides the buffer.
    """
    s, n, k, w = size_bytes, world_size, aggregators, bytes_per_s
    if n == 1:
        return 0.0
    spared = (k > 1) + (k == n)
    return 2 * s / w + (n - spared) * s / (k * w) + 4 * latency_s


def all_reduce_s(size_bytes: float, world_size: int, bytes_per_s: float, latency_s: float) -> float:
    """Seconds by FasDL equation 1 with K = 1: (W + 2) S/w, and four latencies.

    S = size_bytes, W = world_size, w = bytes_per_s of a worker, each way. Exact in virtual time.
    """
    return (world_size + 2) * size_bytes / bytes_per_s + 4 * latency_s


def scatter_reduce_s(
    size_bytes: float, world_size: int, bytes_per_s: float, latency_s: float
) -> float:
    """Seconds by FuncPipe equation 1: 3s/w - 2s/(nw) + 4 t_lat.

    s = size_bytes, n = world_size, w = bytes_per_s of a worker, each way; t_lat = latency_s. Exact
    in virtual time if n divides the buffer.
    """
    s, n, w = size_bytes, world_size, bytes_per_s
    return 3 * s / w - 2 * s / (n * w) + 4 * latency_s


def pipelined_s(size_bytes: float, world_size: int, bytes_per_s: float, latency_s: float) -> float:
    """Seconds by FuncPipe equation 2: 2s/w + (2 + n) t_lat.

    s = size_bytes, n = world_size, w = bytes_per_s of a worker, each way; t_lat = latency_s. Exact
    in virtual time if n divides the buffer. Requests and bytes are those of scatter-reduce:
    `k_reduce_requests` and `k_reduce_bytes` with n aggregators.
    """
    return 2 * size_bytes / bytes_per_s + (2 + world_size) * latency_s


def push_pull_s(
    size_bytes: float,
    world_size: int,
    chunk_bytes: float,
    bytes_per_s: float,
    latency_s: float,
    server_bytes_per_s: float = float("inf"),
) -> float:
    """Seconds: max(s/w, q + n(s - c)/W) + 2nc/W + q + 2 t_lat.

    s = size_bytes, n = world_size, c = chunk_bytes, w = bytes_per_s of a worker and
    W = server_bytes_per_s of the server, each way; q = c/w, t_lat = latency_s of a worker's
    requests. The workers' uplinks or the server's link, whichever takes longer, are busy
    throughout; the last chunk passes the server twice, n times each, and the worker's downlink.
    Exact in virtual time if the chunks are equal.
    """
    s, n, c, w = size_bytes, world_size, chunk_bytes, bytes_per_s
    if n == 1:
        return 0.0
    q, at_server = c / w, n / server_bytes_per_s
    return max(s / w, q + (s - c) * at_server) + 2 * c * at_server + q + 2 * latency_s
