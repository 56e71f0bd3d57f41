"""What a worker does in a step: data, gradients, the flat buffer, validation."""
