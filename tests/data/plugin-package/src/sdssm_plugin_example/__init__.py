"""Two models for sdssm: a whole module (`gru`), and a sequence mixer inside sdssm's classifier (`leaky`)."""
