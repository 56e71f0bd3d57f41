"""How short-lived workers make one long piece of work."""
