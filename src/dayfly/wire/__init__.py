"""How functions talk: channels, collectives as schedules, the engine that runs them."""
