"""A toy family of maps outside the package, as CONTRIBUTING asks for it: means of equal boxes."""
