from fenchel.kernels.native._tree import register_trees

register_trees("projective_tree", True)
