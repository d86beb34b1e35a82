"""A method of your own in 20 lines, beside LDC.

`python own_method.py` runs it on `glyphs` (the network is trained once, a few minutes);
`python own_method.py drawn.toml` on the features that `features_from_file.py` draws, in seconds.
"""

import sys
from dataclasses import dataclass

import torch
import torch.nn.functional as F

import fscil_bench as fb
from fscil_bench.method import Method


class Neighbourly(Method):
    """New class means move towards the nearest base class's mean; queries by cosine."""

    name = "neighbourly"
    tuning_grid = {"share": (0.1, 0.2, 0.4)}

    @dataclass(frozen=True)
    class Params:
        """`share`: how far a new mean moves."""

        share: float = 0.2

    def learn_base(self, base):
        self.means = self.base = self._means(base)

    def learn_session(self, session):
        means = self._means(session)
        nearest = self.base[(means @ self.base.T).argmax(1)]
        self.means = torch.cat([self.means, torch.lerp(means, nearest, self.params.share)])

    def scores(self, queries):
        return F.normalize(queries.features, dim=1) @ F.normalize(self.means, dim=1).T

    def state_dict(self):
        return {"means": self.means, "base": self.base}

    def load_state_dict(self, state):
        self.means, self.base = state["means"].clone(), state["base"].clone()

    def _means(self, session):
        x = F.normalize(session.features, dim=1)
        return torch.stack([x[session.labels == c].mean(0) for c in session.class_ids])


def main() -> None:
    """Hold it against the contract, run it beside class means and LDC, and compare."""
    protocol = sys.argv[1] if len(sys.argv) > 1 else "glyphs"
    for verdict in fb.check(__file__):
        print(verdict)
    methods = ["ncm", Neighbourly.name, "ldc"]
    fb.run(methods, protocol, seed="0-5", plugins=[__file__])
    print(fb.make_report("compare", protocol, methods=methods, plugins=[__file__]).text)


if __name__ == "__main__":
    main()
