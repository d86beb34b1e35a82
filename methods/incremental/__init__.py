"""Methods that train the network on in every session: fine-tuning, joint, iCaRL, FSLL, F2M."""
