package resp

// Long is how many bytes a command or a reply may have that is not long. A long one is not gathered with others, so that
// nobody waits while it is copied: a command goes by itself, over a connection that nobody else uses until it is answered
// (internal/backend/long.go, which also learns whose replies are long), and a reply is passed on in the pieces in which it
// comes. As much is gathered of short ones before they are written.
//
// Two bounds have reasons of their own: upstream.CopiedBelow, a quarter of it, is where a slot of writev is cheaper than a copy;
// and the reader of a shared pipe gathers half of it of a reply, since what comes behind must have room in its buffer.
const Long = 64 << 10
