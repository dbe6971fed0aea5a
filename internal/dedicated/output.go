package dedicated

import "github.com/lockproxy/lockproxy/internal/downstream"

// output is what the client is to get. It is written when all that has come is taken, or when much has been gathered.
// While the client has a part of a reply nobody else writes to it.
type output struct {
	bytes []byte // not written yet
	whole int    // how many of these bytes end with a whole reply
	part  bool   // what was added last does not end a reply
	to    downstream.Passage
}

// add adds bytes. Many at once are not copied first.
func (o *output) add(b []byte) {
	if len(b) == 0 {
		return
	}
	o.part = true
	if len(b) >= flushAt {
		o.flush()
		o.to.Write(b, true)
		return
	}
	if o.bytes = append(o.bytes, b...); len(o.bytes) >= flushAt {
		o.flush()
	}
}

// end says that what was added ends with a whole reply.
func (o *output) end() { o.whole, o.part = len(o.bytes), false }

// flush writes what was added to the client.
func (o *output) flush() {
	if len(o.bytes) == 0 && o.to.Within() == o.part {
		return
	}
	o.to.Write(o.bytes, o.part)
	o.bytes, o.whole = o.bytes[:0], 0
	if cap(o.bytes) > keepBytes {
		o.bytes = nil
	}
}

// rest lets go of a buffer of more than idleBytes: no reply is pending, so nothing may come for long, and what is kept
// meanwhile would not count for max-reply-memory.
func (o *output) rest() {
	if cap(o.bytes) > idleBytes && len(o.bytes) == 0 {
		o.bytes = nil
	}
}

// cut forgets the reply that is not whole: its rest will not come. A client that has a part of it is cut off.
func (o *output) cut(why string) {
	o.to.GiveUp(why)
	o.bytes, o.part = o.bytes[:o.whole], false
}
