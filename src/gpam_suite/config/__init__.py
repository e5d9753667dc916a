"""From Hydra's composed configuration to what a run is."""
