"""Models for sdssm: a whole module (`gru`), a sequence mixer (`leaky`), and those of an example (`own_models`)."""
