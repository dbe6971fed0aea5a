package own

import (
	"strconv"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/upstream"
)

// Authenticate logs the client's own connection in as well, as id, with these words.
func (o *Connections) Authenticate(id upstream.Identity, words ...string) error {
	p := o.current()
	if p == nil {
		return nil
	}
	err := change(p.Conn, &dedicated.Reply{}, words...)
	if err == nil {
		p.Authenticated(id)
	}
	return err
}

// Hello has the client's own connections speak id's protocol, or, if it fails, none.
func (o *Connections) Hello(id upstream.Identity) error {
	if p := o.current(); p != nil {
		if err := o.hello(p.Conn, id); err != nil {
			return err
		}
	}
	if o.subscriptions != nil {
		o.subscriptions.Hello(id)
	}
	return nil
}

// hello is Hello of one connection. What comes there behind the answer waits for Greeted.
func (o *Connections) hello(p *dedicated.Conn, id upstream.Identity) error {
	o.greeting = append(o.greeting, p)
	return change(p, &dedicated.Reply{Effect: dedicated.Protocol(id.Proto)}, "HELLO", strconv.Itoa(id.Proto))
}

// Greeted is called when the client has its reply to HELLO.
func (o *Connections) Greeted() {
	for _, p := range o.greeting {
		p.Greeted()
	}
	o.greeting = nil
}

// change asks p what makes it another user's, or another protocol's.
func change(p *dedicated.Conn, e *dedicated.Reply, words ...string) error {
	p.Taint()
	reply, err := p.Ask(e, backend.QuestionTime, words...)
	if err == nil {
		err = upstream.ErrorIn(reply)
	}
	return err
}

// SelectDB switches the client's own connection to database n, which is word in the client's SELECT. has: there is
// such a connection, and it is one to a Redis that may have that database: a cluster's nodes are asked for database 0
// alone.
func (o *Connections) SelectDB(n int, word []byte) (reply []byte, has bool, err error) {
	if n < 0 || n > 0 && o.nodes != nil {
		return nil, false, nil
	}
	p := o.current()
	if p == nil {
		return nil, false, nil
	}
	reply, err = p.Ask(&dedicated.Reply{Effect: dedicated.Select(n)}, backend.QuestionTime, "SELECT", string(word))
	o.current() // the client is in that database
	return reply, true, err
}

// Rename gives the client's own connection its name.
func (o *Connections) Rename(name string) {
	if p := o.current(); p != nil {
		p.Rename(name)
	}
}
