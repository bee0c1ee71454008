"""The one pass: leaves of many chunks -> fixed tree -> the value of a statistic.

The only subpackage that builds a Dask graph. One task reads a box, masks it, gives its rows to the
statistic and adds up the results; nothing of size n is ever held.
"""

from rff_stream.execution.leaves import Leaves
from rff_stream.execution.reading import Reading, no_rows

__all__ = ["Leaves", "Reading", "no_rows"]
