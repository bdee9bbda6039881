"""One judgement, in the parent: the children, their cases, the race, and the verdict's evidence."""
