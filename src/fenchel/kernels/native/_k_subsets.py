from fenchel.kernels.native._structures import register_oracle

register_oracle("k_subsets")
