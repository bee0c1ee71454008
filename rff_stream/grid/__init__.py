"""A grid of frequencies, whose sums are the same for every kernel: the family of ``"grid"``.

``map`` holds the frequencies, ``moments`` what is summed, ``system`` the linear equations of the
sums, ``selection`` the kernel and penalty that are found after the read, ``answers`` the result.
"""
