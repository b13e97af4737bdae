"""Where cells run: this machine, or a cluster through job scripts."""
