"""Methods: one file each, holding settings, prompts, play and credit."""
