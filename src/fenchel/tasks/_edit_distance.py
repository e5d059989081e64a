from __future__ import annotations


def edit_distance(one: str, other: str) -> int:
    """Levenshtein's distance: the fewest insertions, deletions and substitutions of characters.

    Example:
        >>> from fenchel.tasks import edit_distance
        >>> edit_distance("drawed", "drawn")
        2
    """
    above = list(range(len(other) + 1))
    for i, character in enumerate(one, 1):
        row = [i]
        for j, opposite in enumerate(other, 1):
            row.append(min(row[-1] + 1, above[j] + 1, above[j - 1] + (character != opposite)))
        above = row
    return above[-1]
