"""Methods that train the network on in sessions: Ft-CNN, joint, iCaRL, FSLL, F2M, BiDist."""
