"""`dayfly run`: any script of torch.distributed on functions, unmodified."""
