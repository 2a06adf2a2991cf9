"""Sweeps: families of runs that differ in hyperparameters. Pure functions and records, standard library only."""
