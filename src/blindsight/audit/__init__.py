"""What a model gives away about those it was trained on: canaries, exposure, extraction, lower bounds on epsilon."""
