"""What all tests share."""

import torch

# Models this small are faster on one thread, and a second one makes them wait for each other on a busy machine.
torch.set_num_threads(1)
