package own

import (
	"bytes"
	"context"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// nobody is a client number that Redis never gives out: it then answers what it answers for one that does not exist.
const nobody = math.MaxInt64

// tracking notes in e what CLIENT TRACKING asks for, and returns the command as Redis is to get it: there REDIRECT
// names a connection at Redis, that of the client which our own number names.
func (p *conn) tracking(e *dedicated.Reply, cmd redcon.Command) []byte {
	args, raw := cmd.Args, cmd.Raw
	call := dedicated.Tracking{On: len(args) > 2 && equalFold(args[2], "ON")}
	for i := 3; i < len(args); i++ {
		switch {
		case equalFold(args[i], "PREFIX"):
			i++
		case equalFold(args[i], "BCAST"):
			call.BCast = true
		case equalFold(args[i], "REDIRECT") && i+1 < len(args):
			i++
			id, ok := resp.Integer(args[i])
			if !ok {
				return raw // Redis says so
			}
			call.To = dedicated.Redirect{Client: id, Redis: nobody}
			if at, found := p.connectionOf(id); found && at != 0 {
				call.To.Redis = at
			} else if found {
				e.Instead = "ERR client " + strconv.FormatInt(id, 10) + " has no connection of its own at Redis to redirect to: let it SUBSCRIBE __redis__:invalidate first"
				return marking
			}
			args = slices.Clone(args)
			args[i] = strconv.AppendInt(nil, call.To.Redis, 10)
			raw = resp.Command(args)
		}
	}
	e.Effect = call
	return raw
}

// equalFold compares a word of a command with a keyword, letter case aside.
func equalFold(word []byte, keyword string) bool { return bytes.EqualFold(word, []byte(keyword)) }

// connectionOf finds the connection at Redis of a client that invalidations are to go to, 0 if it has none and gets
// none. It stays that client's until the redirection ends.
func (p *conn) connectionOf(id int64) (redisID int64, found bool) {
	o := p.o
	if id == o.client.Number {
		return p.RedisID(), true // which it keeps while it is tracking
	}
	c := o.Common.Client(id)
	if c == nil || c.client.End.Over() {
		return 0, false
	}
	c.View.Targets.Add(1) // first: GiveBack looks at Targets once more after it has hidden RedisID
	if redisID = c.View.RedisID.Load(); redisID == 0 {
		redisID = c.requestConn(o.Context)
	}
	if redisID == 0 {
		c.noTarget()
	} else {
		p.targets = append(p.targets, c)
	}
	return redisID, true
}

// noTarget notes the end of one redirection to the client.
func (o *Connections) noTarget() {
	if o.View.Targets.Add(-1) == 0 {
		o.client.Reader.Notify()
	}
}

// dropTargets lets the clients to whose connections p redirected give those back, except for the client with that
// number.
func (p *conn) dropTargets(but int64) {
	kept := false // once: it may have been named several times
	p.targets = slices.DeleteFunc(p.targets, func(c *Connections) bool {
		if c.client.Number == but && !kept {
			kept = true
			return false
		}
		c.noTarget()
		return true
	})
}

// requestWait is how long a client waits for another that is at work, before it gives up.
const requestWait = time.Second

// requestConn makes client o, which is another one than the caller's, take a connection of its own, to which
// invalidations may be redirected, and returns that connection's CLIENT ID. The goroutine of o takes it, where it reads
// its next command; 0: it did not in time, or there is no such connection.
func (o *Connections) requestConn(ctx context.Context) int64 {
	answer := make(chan int64, 1)
	if !o.request.CompareAndSwap(nil, &answer) { // somebody else asks just now
		return 0
	}
	o.client.Reader.Notify()
	ctx, cancel := context.WithTimeout(ctx, requestWait)
	defer cancel()
	select {
	case id := <-answer:
		return id
	case <-ctx.Done():
		o.request.CompareAndSwap(&answer, nil)
		return 0
	}
}

// Requested says that another client wants this one to have a connection of its own.
func (o *Connections) Requested() bool { return o.request.Load() != nil }

// ServeRequest does what requestConn asks for, in the client's own goroutine while no command is at work. refused is
// why Redis does not serve the client; nil: it does.
func (o *Connections) ServeRequest(refused error) {
	request := o.request.Swap(nil)
	if request == nil {
		return
	}
	if refused != nil {
		*request <- 0
		return
	}
	defer o.Settle()
	p := o.current()
	fresh := p == nil
	if fresh {
		var err error
		if p, err = o.open(); err != nil {
			*request <- 0
			return
		}
	}
	id := p.RedisID()
	if fresh && id == 0 { // this client's user may not run CLIENT ID
		o.drop()
		*request <- 0
		return
	}
	p.Wait()
	*request <- id
}

// About asks Redis about the client's own connection, and says where its invalidations go. Without such a connection
// any will do, because nothing is set on it.
func (o *Connections) About(args [][]byte) (answer []byte, to dedicated.Redirect, err error) {
	p := o.current()
	if p == nil {
		answer, err = o.forwarder.Ask(args, backend.Destination{})
		return answer, to, err
	}
	answer, err = p.Ask(&dedicated.Reply{}, backend.QuestionTime, string(args[0]), string(args[1]))
	return answer, p.Status().Redirect, err
}
