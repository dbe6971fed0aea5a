package node

import (
	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/scripts"
	"github.com/lockproxy/lockproxy/upstream"
)

// Shape is how many integers a script returns, so that what reads them finds them there whatever a node says. The zero
// value is one or more.
type Shape struct {
	Least int  // so many at least,
	Late  bool // or one alone, which says that the script was too late
	Names int  // those behind the first are from 1 to that; 0: any
}

// Fits says whether a reply has that shape.
func (s Shape) Fits(out []int64) bool {
	if len(out) == 1 && s.Late && Late(out) {
		return true
	}
	if len(out) == 0 || len(out) < s.Least {
		return false
	}
	for _, n := range out[1:] {
		if s.Names > 0 && (n < 1 || n > int64(s.Names)) {
			return false
		}
	}
	return true
}

// Late says whether what a script returned, if that is integers, is that its not-after had passed.
func Late(out []int64) bool { return len(out) > 0 && out[0] == scripts.Late }

// errOdd is what a node gets for a reply that is none of that script.
func errOdd(script string) error {
	return &upstream.ReplyError{Line: "ERR unexpected reply of the lock script " + script}
}

// Ints reads a reply of the call's script, which is an integer, or an array of them.
func (c Call) Ints(reply rueidis.RedisMessage, err error) ([]int64, error) {
	if err != nil {
		return nil, err
	}
	out, err := intsIn(reply)
	if err != nil {
		return nil, err
	}
	return c.judged(out)
}

// judged is out, or the error of a reply that is none of the call's script.
func (c Call) judged(out []int64) ([]int64, error) {
	if !c.Shape.Fits(out) {
		return nil, errOdd(c.Script.Name)
	}
	return out, nil
}

func intsIn(reply rueidis.RedisMessage) ([]int64, error) {
	if n, err := reply.AsInt64(); err == nil {
		return []int64{n}, nil
	}
	out, err := reply.AsIntSlice()
	if err != nil {
		return nil, &upstream.ReplyError{Line: "ERR unexpected reply of a lock script: " + err.Error()}
	}
	return out, nil
}
