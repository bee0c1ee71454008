"""Linear systems: moments made into equations, factored once, solved for every penalty."""
