# SPDX-License-Identifier: BSD-3-Clause
"""Predictors of the reference decoder: kvarc-format.md 5.2, and what chunks of
codecs 7 to 9 and 14 are predicted from (codecs/linear.md 6, codecs/model.md)."""

import kvarc_codecs as codecs
import kvarc_session as sessions
import kvarc_linear as linear
import kvarc_lossy as lossy
from kvarc_codecs import Bad, Cursor, demand
from kvarc_profile import Profile
from kvarc_tokens import Tokens
from xxh3 import h128


class ProfilePredictor:
    """5.2: parameters of kind 1."""

    kind = 1

    def __init__(self, cursor):
        where = cursor.u8()
        demand(where <= 1, "the position of a profile")
        self.embedded, self.level = where, cursor.u8()
        demand(self.level in (2, 3, 9), "the level of a predictor")
        self.models = self.level
        self.digest, self.name = cursor.take(16), cursor.string()


class Predictors:
    """Of one archive. profiles: of a user; models: of kvarc_model."""

    def __init__(self, archive, profiles, models):
        self.archive = archive
        self.profiles = {p.digest: p for p in profiles}
        self.models = {m.digest: m for m in models}
        self.named = {}             # by sequence
        self.filling = None         # the one whose PROFILE frames come
        self.unknown = False        # the last one is of a later version
        self.later = set()          # those of later versions
        self.last = None            # sequence
        self.features = {}          # of the open segment
        self.exact = set()          # tensors of it: codec 9, method 0
        self.expected = {}          # of it: H64 of E (codecs/model.md 4), by tensor
        self.sessions = {}            # by predictor and track
        self.tokens = {}            # the same, of token ids

    # ------------------------------------------- PREDICTOR and PROFILE frames

    def on_predictor(self, f):
        cursor = Cursor(f.content)
        kind = cursor.u8()
        self.last = f.sequence
        parameters = Cursor(cursor.take(cursor.varint()))
        cursor.extensions()
        self.unknown = kind > 2 or kind == 2 and (
            parameters.content[:1] or b"\0")[0] >> 4
        if self.unknown:            # what names it is not read
            self.later.add(f.sequence)
            return
        if kind:
            p = (sessions.Predictor if kind == 2 else ProfilePredictor)(
                parameters)
            p.parts, p.left = b"", 0
            if p.embedded:
                p.left = parameters.varint(1 << 30)
                demand(p.left, "the size of an embedded profile")
                self.filling = p
            self.named[f.sequence] = p
        parameters.end()

    def on_profile(self, f):
        p = self.filling
        if self.unknown:
            return
        cursor = Cursor(f.content)
        demand(cursor.varint() == len(p.parts), "the offset of a PROFILE")
        part = cursor.rest()
        demand(1 <= len(part) <= p.left, "the size of a PROFILE")
        p.parts += part
        p.left -= len(part)
        if not p.left:
            demand(h128(p.parts) == p.digest, "the digest of a profile")
            if p.digest not in self.profiles:
                self.profiles[p.digest] = Profile(p.parts)
            self.filling = None

    # ------------------------------------------------- segments and chunks

    def begin(self, s):
        """s.session: a Session, the error that prevents one, or None: no model predicts."""
        self.features, self.exact, self.expected = {}, set(), {}
        s.predictor, s.session = self.last, None
        p = self.named.get(s.predictor)
        if not p or p.kind != 2:
            return
        key = s.predictor, s.track
        if key not in self.sessions:
            try:
                self.sessions[key] = self.session(p, s.track)
            except Bad as bad:
                self.sessions[key] = bad
        s.session = self.sessions[key]
        if not isinstance(s.session, Bad):
            s.session.begin(s)

    def token_ids(self, s):
        """tokens.md: of a segment, coded or not."""
        p = self.named.get(self.last)
        head = getattr(p, "head", None)
        demand(not (s.coded and self.unknown), "coded token ids",
               "unsupported")
        demand(head or not s.coded, "coded token ids without PREDICTOR")
        if not head:
            return
        key = self.last, s.track
        if key not in self.tokens:
            try:
                self.tokens[key] = self.coder(p, s.track)
            except Bad as bad:
                self.tokens[key] = bad
        coder = self.tokens[key]
        if not isinstance(coder, Bad) and s.t0 <= coder.t0:
            coder.rewind(s.t0)
        why = coder if isinstance(coder, Bad) else coder.why
        if s.coded and why:
            raise why
        if why:
            return
        # Tokens before this PREDICTOR frame
        demand(coder.t0 == s.t0 or not s.coded, "tokens before a PREDICTOR",
               "unsupported")
        if s.coded:
            coder.decode(s)
        elif coder.t0 == s.t0:
            try:
                demand(s.ids is not None, "tokens without ids")
                coder.go(s.ids, s.positions)
            except Bad as bad:
                coder.why = bad

    def coder(self, p, track):
        model = self.model(p)
        coder = Tokens(model, p, sessions.frequencies(
            model.weights, self.archive.geometry, track))
        demand(coder.head.digest == p.head, "the model has another head",
               "predictor")
        return coder

    def session(self, p, track):
        profile = self.profile(p)
        return sessions.Session(self.model(p), p, profile,
                            self.archive.geometry, track)

    def model(self, p):
        demand(p.weights in self.models, "the model with weights %s (%s) is "
               "missing" % (p.weights.hex(), p.model_name.decode(
                   "utf-8", "replace")), "predictor")
        return self.models[p.weights]

    def header(self, s, codec, heads, t, params):
        """A chunk of codec 7, 8, 9 or 14."""
        demand(heads == t.heads, "the heads of a chunk of codec %d" % codec)
        demand(s.predictor not in self.later, "a predictor", "unsupported")
        # 5.2 "the last PREDICTOR frame before its SEGMENT"
        demand(params == s.predictor and params in self.named and
               self.named[params].kind == (2 if codec in (8, 9) else 1),
               "a CHUNK without PREDICTOR")
        if codec in (7, 14):
            demand((self.named[params].level == 9) == (codec == 14),
                   "a PREDICTOR of another level")

    def decode(self, codec, cut, tensor, s, payload):
        t = self.archive.geometry.tensors[tensor]
        rows = None
        if isinstance(s.session, Bad):
            raise s.session
        m = self.model_of(s.predictor, t)
        if codec == 14:
            tokens = linear.tokens_of(
                linear.Layout(m, t.rope), t.dtype, s.n, s.positions, s.ids,
                self.sources_of(t, m, s))
            return lossy.decode_chunk(codec, cut, payload, t, t.heads, s.n, m,
                                      s.positions, [x.base for x in tokens])
        if codec >= 8:
            kind = s.session.kind_of(tensor, t)
            demand(kind is not None, "a tensor that the model cannot predict")
        if codec == 9:
            cut.none()
            raw, exact = sessions.patched(
                payload, s.session.predicted(t.layer, kind),
                codecs.ELEMENT_BYTES[t.dtype])
            self.exact |= {tensor} if exact else set()
            return raw
        cursor = Cursor(payload)
        if codec == 8:
            rows = s.session.expect(t.layer, kind)
            self.expected[tensor] = sessions.hash_of(rows)
            sources = [self.source(t, x.model) for x in m.same]
            if m.scale:
                sources.append(self.source(t, m.scale.model))
            demand(all(i in self.expected for i in sources),
                   "a source without a prediction")
            sessions.check(cursor, [self.expected[i]
                                    for i in sources + [tensor]])
        layout = linear.Layout(m, t.rope)
        tokens = linear.tokens_of(layout, t.dtype, s.n, s.positions, s.ids,
                                  self.sources_of(t, m, s), rows)
        raw = linear.decode_chunk(cursor, cut, layout, t, tokens,
                                  codecs.grid_set(0))
        self.features[tensor] = tokens
        return raw

    def observe(self, tensor, s, heads, raw):
        """A chunk was decoded, whatever its codec: the model continues."""
        g, t = s.session, self.archive.geometry.tensors[tensor]
        if not isinstance(g, sessions.Session):
            return
        kind = g.kind_of(tensor, t)
        if kind is None or g.layer is None or g.why:
            return
        if heads != t.heads:
            g.lose("a tensor came in several chunks")
            return
        if tensor not in self.features:
            m = self.model_of(s.predictor, t)
            rows = g.expect(t.layer, kind)
            self.expected[tensor] = sessions.hash_of(rows)
            self.features[tensor] = linear.observe_all(
                linear.Layout(m, t.rope), t.dtype, s.n, s.positions, s.ids,
                self.sources_of(t, m, s), linear.coded_elements(raw, t.dtype),
                rows)
        g.tell(kind, raw, self.features[tensor], tensor in self.exact)

    # --------------------------------------------------- models and sources

    def profile(self, p):
        demand(p.digest in self.profiles, "profile %s (%s) is missing"
               % (p.digest.hex(), p.name.decode("utf-8", "replace")),
               "predictor")
        return self.profiles[p.digest]

    def model_of(self, predictor, t):
        """The model of a tensor, or the answer "predictor" (5.2)."""
        p = self.named[predictor]
        m = self.profile(p).models.get((p.models, t.layer, t.kind))
        demand(m and linear.fits(m, t),
               "the profile has no model for a tensor", "predictor")
        return m

    def source(self, t, model):
        """The tensor of a source (linear.md 6): "the first one, in the order
        of chunks, of the slot's track with the source's layer and kind that
        the source's model fits"."""
        for i, other in enumerate(self.archive.geometry.tensors):
            if ((other.track, other.layer, other.kind)
                    == (t.track, model.layer, model.kind)
                    and linear.fits(model, other)):
                return i
        raise Bad("data", "a source is not in the file")

    def sources_of(self, t, m, s):
        def seen(source):
            return self.features_of(self.source(t, source.model),
                                    source.model, s)
        return {"lower": [self.z_of(self.source(t, x.model), x.model, s)
                          for x in m.lower],
                "same": [seen(x) for x in m.same],
                "scale": seen(m.scale) if m.scale else None}

    def elements(self, tensor, s):
        """The elements of a source in the open segment."""
        t = self.archive.geometry.tensors[tensor]
        found = [c for c in self.archive.chunks
                 if (c.tensor, c.segment, c.heads)
                 == (tensor, self.archive.open_segment, t.heads)]
        demand(found, "a source in several chunks")
        return linear.coded_elements(found[0].raw, t.dtype)

    def z_of(self, tensor, model, s):
        """What a lower layer shows, whatever its codec was."""
        if tensor in self.features:
            return self.features[tensor]
        t = self.archive.geometry.tensors[tensor]
        return linear.observe_z(linear.Layout(model, t.rope), t.dtype,
                                s.positions, self.elements(tensor, s))

    def features_of(self, tensor, model, s):
        """z, r and the scale of each token."""
        if tensor not in self.features:
            t = self.archive.geometry.tensors[tensor]
            self.features[tensor] = linear.observe_all(
                linear.Layout(model, t.rope), t.dtype, s.n, s.positions,
                s.ids, self.sources_of(t, model, s),
                self.elements(tensor, s))
        return self.features[tensor]
