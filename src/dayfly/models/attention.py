"""Attention of a sequence to itself, as BERT and GPT have it.

Vaswani and others, "Attention Is All You Need" (2017).
Shapes: B samples, T tokens, D width, H heads.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class SelfAttention(nn.Module):
    """x_BTD (B, T, D) -> (B, T, D); 4 D^2 + 4 D parameters.

    causal: a token hears those before it and itself. dropout: of the shares of attention.
    """

    def __init__(self, width: int, heads: int, *, dropout: float = 0.0, causal: bool = False):
        super().__init__()
        if width % heads:
            raise ValueError(f"{heads} heads share a width of {width}: give one that they divide")
        self.heads, self.dropout, self.causal = heads, dropout, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x_BTD: torch.Tensor, heard_BT: torch.Tensor | None = None) -> torch.Tensor:
        """heard_BT (B, T) bool: which tokens are heard; None: all."""
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, H, T, D / H)
            for part in self.qkv(x_BTD).chunk(3, dim=-1)
        )
        heard = F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=None if heard_BT is None else heard_BT[:, None, None, :],
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=self.causal,
        )
        mixed: torch.Tensor = self.out(heard.transpose(1, 2).flatten(2))
        return mixed


@torch.no_grad()
def start_small(model: nn.Module, deviation: float = 0.02) -> None:
    """Begin as BERT and GPT do: normal weights of that deviation, biases of 0."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=deviation)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
