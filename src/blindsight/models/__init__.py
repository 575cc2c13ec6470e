"""Models as plain pytrees (Equinox modules), one readable file each."""
