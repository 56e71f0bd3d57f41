"""The wire as a backend of torch.distributed: a thin adapter over the engine."""
