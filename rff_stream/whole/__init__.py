"""One map of the whole space: the family of every map that is not of another one."""
