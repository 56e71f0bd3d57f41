"""One job from the request to the bill: puts platform, channel, training and life together."""
