"""Numbers of the C ABI: those of ``csrc/fenchel.h``, which ``tests/kernels/test_abi.py`` compares.

The numbers of the kinds of structures are not here: the core is asked for them by name.
"""

ABI_VERSION = 4

DONE, NO_MEMORY, STOPPED, OUT_OF_RANGE = range(4)  # enum fenchel_status
OMEGAS = {"entropy": 0, "l2": 1}  # enum fenchel_omega
GROUPS = {"fusedmax": 0, "oscarmax": 1}  # enum fenchel_groups
NO_MASK, BYTE_MASK, ADDED_MASK = range(3)  # enum fenchel_mask

#: What the numbers of attention's ``shape`` are: enum fenchel_shape.
SHAPE = (
    *("batch", "heads", "kv_heads", "queries", "keys", "d", "d_value"),
    *("causal", "mask_kind", "mask_strides", "mask_strides", "mask_strides", "mask_strides"),
)
