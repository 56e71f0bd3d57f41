"""What a run will take, beforehand: profile, predict, simulate. Pure: no reading, no writing."""
