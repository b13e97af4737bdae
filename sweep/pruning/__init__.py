"""Which weights stay: numpy in, numpy out."""
