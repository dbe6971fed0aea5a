package dedicated

// transaction is between MULTI and the end of EXEC's reply.
//
// EXEC's reply is taken as its head and as many frames behind that as its commands have. Redis counts a SUBSCRIBE to
// two channels as one element, but sends two confirmations, and does not count a message that a command of the
// transaction brings to this connection: so the head tells how many commands were run, and of which command a frame is
// follows from what was queued.
type transaction struct {
	phase   phase
	queued  int            // commands in it
	effects map[int]Effect // of those, by their place
	bytes   int            // kept for them, about
	name    *string        // the last that the client was given; nil: none
	place   int            // of the command whose reply comes next, while it is executed
	left    int            // commands whose replies are still to come then, with that one
}

// phase is how far a transaction has come.
type phase uint8

const (
	noTransaction phase = iota
	queueing            // MULTI is answered
	aborted             // so it is, and Redis has refused to queue something: EXEC will run nothing
	executing           // EXEC's head has come, and not all of its commands' replies
)

// effectBytes is about how much is kept for a queued command that does something to the connection, beside its words.
const effectBytes = 256

// queue takes a command that was answered QUEUED.
func (t *transaction) queue(e Effect) {
	if e != nil {
		if t.effects == nil {
			t.effects = make(map[int]Effect)
		}
		t.effects[t.queued] = e
		t.bytes += effectBytes + e.bytes()
	}
	t.queued++
}

// effect is that of the command whose reply comes next, while it is executed.
func (t *transaction) effect() Effect { return t.effects[t.place] }

// next goes to the next command. It has ended if there is none.
func (t *transaction) next() {
	t.place++
	if t.left--; t.left == 0 {
		*t = transaction{}
	}
}
