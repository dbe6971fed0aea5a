package upstream

import (
	"context"
	"math"
	"time"
)

// Outcome is what becomes of a request.
type Outcome int

const (
	Answered Outcome = iota // by Redis, also by its refusal of the connection
	SendAgain
	Unknown // Redis may have run it, or a part of it
	NotRun  // Redis cannot have run it
)

// Attempt is one way of a request to Redis, as far as it came.
type Attempt struct {
	Err        error         // how it ended: nil, or that of Pipe.Do, of Dedicate, of connecting, or of an Asker
	Repeatable bool          // Redis may run it twice: it changes nothing, or comes to the same
	Left       time.Duration // the time in which it may be sent once more; 0 or less: none
}

// Outcome decides what becomes of the request. It is sent again only while there is time, and never when somebody has
// ended it (Ended), unless that was for its node's slowness alone: then another one is asked.
func (a Attempt) Outcome() Outcome {
	if a.Err == nil || Refused(a.Err) != nil {
		return Answered
	}
	unsent := IsNotSent(a.Err)
	mayGoAgain := unsent || a.Repeatable
	switch {
	case IsFull(a.Err): // there is no room for a connection, now and soon
		return NotRun
	case mayGoAgain && a.Left > 0 && !abandoned(a.Err):
		return SendAgain
	case unsent:
		return NotRun
	}
	return Unknown
}

// timeLeft is the time until ctx ends; 0 or less: it has ended.
func timeLeft(ctx context.Context) time.Duration {
	if ctx.Err() != nil {
		return 0
	}
	if deadline, has := ctx.Deadline(); has {
		return time.Until(deadline)
	}
	return math.MaxInt64
}
