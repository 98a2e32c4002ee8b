"""The main job on real input: a disk that really fills up, told as it happens. No daemon imports this."""
