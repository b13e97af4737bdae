"""How fast this machine trains: steps, scaling over devices, and how far both are from what the hardware allows."""
