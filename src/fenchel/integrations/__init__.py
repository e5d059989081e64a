"""Bridges to other libraries; import the one you need, as ``fenchel.integrations.entmax``."""
