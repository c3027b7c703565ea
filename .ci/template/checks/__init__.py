"""Checks of template.yaml, of what SAM makes of it, and of the artefacts that sam build makes."""
