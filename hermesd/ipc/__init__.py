"""How the parts talk: envelopes as lines of JSON over Unix sockets whose peers the kernel names."""
