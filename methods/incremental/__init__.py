"""Methods that train the network on in every session: fine-tuning, joint training, iCaRL, FSLL."""
