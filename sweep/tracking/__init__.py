"""wandb as a mirror of the files on disk."""
