"""The models of several seeds as one, by the average of their probabilities, as in Table 1.

    python -m benchmarks.papers.ensembles DATA OUT

DATA and OUT are those of ``benchmarks.papers.inflection``, whose seeds are averaged.
"""

from __future__ import annotations

import json
import time
from itertools import product

import torch

from benchmarks.papers.inflection import LANGUAGES, MAPS
from benchmarks.papers.runs import places, write_json
from fenchel.tasks import SearchOptions, ensemble, evaluate, open_runs


def main() -> None:
    options = places(__doc__).parse_args()
    torch.set_num_threads(options.threads)
    test = [str(options.data / f"{language}-test") for language in LANGUAGES]
    for output, attention in product(MAPS, MAPS):
        path = options.out / "ensembles" / f"ensemble-{output}-{attention}.json"
        done = sorted(options.out.glob(f"inflection-{output}-{attention}-*.json"))
        seeds = [json.loads(one.read_text())["seed"] for one in done]
        if len(seeds) < 2 or (path.exists() and json.loads(path.read_text())["seeds"] == seeds):
            continue
        start = time.perf_counter()
        runs = open_runs([options.out / "runs" / one.stem for one in done])
        task = runs[0].task
        scores = evaluate(ensemble(runs), task, task.read(test), SearchOptions(beam=5))
        kept = ("accuracy", "certified", "exhaustive", "single", "support")
        document = {
            "output": MAPS[output],
            "attention": MAPS[attention],
            "seeds": seeds,
            "measured": {name: scores[name] for name in kept},
            "seconds": time.perf_counter() - start,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, document)
        print(f"{path.stem}: accuracy {scores['accuracy']:.4f} of {len(seeds)} seeds", flush=True)


if __name__ == "__main__":
    main()
