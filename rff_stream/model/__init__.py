"""What a fit knows, as one value, and the functions that make the next one of it.

:class:`~.fitted.Fitted` is the value. ``fit``, ``fit_moments``, ``update``, ``partial_fit``,
``stream``, ``save`` and ``restore`` lead to it or from it; a :class:`~.recipe.Recipe` says what
differs between estimators. ``facts`` is the one description of a model.
"""
