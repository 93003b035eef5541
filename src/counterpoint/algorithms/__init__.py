"""Pure functions: arrays in, arrays out. No I/O, no configuration, no hidden state."""
