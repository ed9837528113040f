# SPDX-License-Identifier: BSD-3-Clause
"""Valid archives that a model predicts behind segments of a store (frames.md 12.3):
VECTORS as in good_transformer.py, objects() the files of the store."""

import copy

from enc_frames import storeref
from frame_vectors import NAMESPACE
from good_tokens import coded, worded
from kvarc_enc import Writer
from transformer_data import archive, tiny

VECTORS, MADE = [], []


class Stored:
    """A Guided session whose segments go into the store where that is said."""

    def __init__(self, session):
        self.s, self.objects = session, {}
        self.ropes, _, self.tensors = session.w.geometry_parts
        session.w.identity([("namespace", NAMESPACE)])
        session.w.chains = True

    def own(self, n):
        self.s.segment(n)
        self.s.all()

    def stored(self, n):
        """What the session has written of it is taken back."""
        s, before = self.s, copy.deepcopy(self.s.w)
        self.own(n)
        positions, ids = s.w.current[3], s.ids
        order = sorted(range(len(self.tensors)), key=lambda i: (
            self.tensors[i]["layer"], self.tensors[i]["kind"], i))
        values = [s.values(i) for i in order]
        s.w = before
        key, = storeref(s.w, 0, [(list(positions), ids, values, True)])
        s.w.commit()
        w = Writer(file_id=b"another object!!")
        w.geometry(self.ropes, [(0, 0, "")], self.tensors)
        w.segment(0, n, list(positions), ids)
        for i, v in zip(order, values):
            w.chunk(i, v)
        w.commit()
        w.close()
        self.objects["object-%s-%s.kva" % (NAMESPACE, key.hex())] = bytes(w.out)


def vector(name, text):
    def add(make):
        def made():
            x = make()
            x.s.w.close()
            return x
        VECTORS.append(("storeref-transformer-" + name, text,
                        lambda: (made().s.w, {})))
        MADE.append(made)
        return make
    return add


@vector("5", "codec 8, closed loop, behind and between segments of the store "
        "that the model goes through")
def _():
    x = Stored(archive(508, tiny(), 5, [], close=False,
                       writer=Writer(incompat=2)))
    for stored, own in ((12, 9), (5, 7)):
        x.stored(stored)
        x.own(own)
    return x


@vector("tokens-7", "token ids coded by the model behind and between segments "
        "of the store")
def _():
    x = Stored(coded(423, worded(), writer=Writer(incompat=2)))
    for stored, own in ((10, 6), (4, 5)):
        x.stored(stored)
        x.own(own)
    return x


def objects():
    return {name: content for make in MADE
            for name, content in make().objects.items()}
