"""Programs of torch.distributed, unmodified, over the backend dayfly: equal to gloo's results."""
