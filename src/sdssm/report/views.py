"""What a plot of accuracies can show; without imports, so that commands can name the views in their help."""

#: The two things that a panel can show.
ACCURACY, ERROR = "accuracy", "error"
#: What a plot can show: accuracy, error rate on a logarithmic axis, both, or whatever shows most.
VIEWS = ("auto", ACCURACY, ERROR, "both")
