"""A state folder of the first version, which every later version has to open, run and explain."""
