"""MLRegTest: every language of a folder, trained with one configuration, measured, and compared with its automaton.

languages       the languages of a folder, what their names say, and which are used to choose settings
configuration   the one configuration: settings, test lengths, strings, and the fingerprint of a record
length_strings  the strings of a language on which its model is measured, drawn in worker processes
edit_pairs      pairs of strings at edit distance 1 with different labels
readings        the predictions of many models at once
proofs          the automaton of a model, compared with the language
records         what is known about a language after its training, one line of JSON
batches         which languages train side by side
campaign        the loop: train, measure, prove, write; it stops between batches when its time is up
timing, pools   when a campaign has to be over; the processes that draw strings and prove
ray_batches     the same loop for each batch on a node of a Ray cluster
summary         shares by class and alphabet, targets, reasons of failures
tables          these as text, Markdown and CSV, in the results folder
reproduction    all of it in one call

Source of the benchmark: van der Poel et al., "MLRegTest: A Benchmark for the Machine Learning of Regular Languages",
Journal of Machine Learning Research 25 (2024), arXiv 2304.07687.
"""
