package history

import "slices"

// Lapse is a time around a failover. What Redis had acknowledged before it may be gone when it is over, since replicas are told later; until
// then the former master may go on for those who are connected to it. When it is over, all that is promised holds again.
type Lapse struct {
	From, To int64
	Of       func(key string) bool // which keys it is about; nil: all
}

// behind is for how long a replica may not know yet what its master has acknowledged.
const behind = second

// Lapse notes one when it is over.
func (r *Recorder) Lapse(l Lapse) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lapses = append(r.lapses, l)
}

// Lapses are those that are about a key.
func (r *Recorder) Lapses(key string) []Lapse {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.lapses), func(l Lapse) bool { return l.Of != nil && !l.Of(key) })
}

// within says whether any of a time may be in one of the lapses.
func within(lapses []Lapse, from, to int64) bool {
	return slices.ContainsFunc(lapses, func(l Lapse) bool { return l.From <= to && l.To >= from })
}

// apart takes out of the spans what their owners cannot be certain of because of a lapse: all from its beginning on, but if they were told
// later that they still held the lock, only until its end.
func apart(spans []span, lapses []Lapse) []span {
	for _, l := range lapses {
		var out []span
		for _, s := range spans {
			if s.grant.Call >= l.To || s.to <= l.From {
				out = append(out, s)
				continue
			}
			before, after := s, s
			before.to, after.from = min(s.to, l.From), max(s.from, l.To)
			if out = append(out, before); s.sure > l.To {
				out = append(out, after)
			}
		}
		spans = out
	}
	return slices.DeleteFunc(spans, func(s span) bool { return s.to <= s.from })
}

// Touched says whether a lapse may have undone some of these calls, or may have been while they were made.
func Touched(lapses []Lapse, ops []*Op) bool {
	return slices.ContainsFunc(ops, func(o *Op) bool { return within(lapses, o.Call, o.Return+behind) })
}
