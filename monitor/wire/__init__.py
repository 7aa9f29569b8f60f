"""Stubs of the contracts in proto/, made by `make proto`."""
