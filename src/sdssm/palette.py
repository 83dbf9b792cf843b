"""One look for all pictures: font, text, lines and colours."""

FONT_FAMILY = "DejaVu Sans, Helvetica, Arial, sans-serif"
TEXT_COLOUR = "#222222"
LINE_COLOUR = "#444444"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
GRID_COLOUR = "#dddddd"
CHANCE_COLOUR = "#888888"
