"""Controllers decide when an agent speaks."""
