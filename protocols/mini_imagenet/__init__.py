"""mini-ImageNet, from any of the copies that circulate."""
