"""What benches are made of."""
