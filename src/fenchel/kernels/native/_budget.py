from fenchel.kernels.native._rows import register_map

register_map("budget")
