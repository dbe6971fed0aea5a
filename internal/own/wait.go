package own

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// WAIT and WAITAOF of Redis wait for the writes of the connection on which they come. The client's own writes went
// over other connections. So such a call runs on a connection beside the client's own, one to each master, and the
// smallest answer counts. Before 7.2 every command makes the present moment the one up to which a connection waits, so
// a WAIT of ours in front is enough. Since then only a write does, and without one all replicas count at once. PUBLISH does
// not go into the AOF, a key that is set and deleted makes two keyspace events, and INFO's offsets tell nothing of the AOF: so
// the write restores no functions.

// noFunctions is what FUNCTION DUMP tells where there are no functions. To restore it adds none and touches no key,
// and is a write all the same: it goes to replicas and into the AOF.
const noFunctions = "\n\x00]\x9b\\@\x0f\x7f\xa2\xda"

var writeNothing = resp.AppendCommand(nil, "FUNCTION", "RESTORE", noFunctions)

// waits runs a WAIT or WAITAOF. false: it is run as other commands are, since Redis refuses it, or queues it. p is the
// client's own connection, nil if it has none.
func (o *Connections) waits(p *conn, cmd redcon.Command, c *commandtable.Command) (taken bool) {
	switch {
	case !counts(c, cmd.Args): // Redis refuses it
		return false
	case !p.Wait():
		return true
	case p != nil && p.Status().Over, o.mutes(c):
		return false
	}
	w := &waitCall{o: o, cmd: c, args: cmd.Args}
	err := w.learn()
	switch {
	case p.InTransaction() && err == nil && !w.writes:
		return false
	case p.InTransaction():
		p.barAs("ERR " + c.Title() + " inside a transaction is not supported by lockproxy on Redis 7.2 and newer: send it after EXEC")
	case err != nil:
		o.Failed(c, err)
	default:
		if p != nil { // it may last
			p.Listen()
		}
		w.run()
	}
	return true
}

// nothing is a WAIT or WAITAOF for nothing.
func nothing(c *commandtable.Command) []string {
	if c.Name == "waitaof" {
		return []string{c.Name, "0", "0", "0"}
	}
	return []string{c.Name, "0", "0"}
}

// counts says that Redis would count acknowledgements for such a call, and not refuse it.
func counts(c *commandtable.Command, args [][]byte) bool {
	if len(args) != len(nothing(c)) {
		return false
	}
	last := int64(0)
	for _, word := range args[1:] {
		n, ok := resp.Integer(word)
		if last = n; !ok {
			return false
		}
	}
	return last >= 0
}

// learn learns whether at one of the masters WAIT needs a write in front. It asks each time, since another server may
// stand there by now. Every user may ask HELLO. Where that has no answer the table of commands decides: WAITAOF came
// with the same version.
func (w *waitCall) learn() error {
	t := w.o.Routes.Load().Table
	told := t.Lookup([]byte("waitaof"))
	has := told != nil && told.Spec != nil
	all, err := w.o.forwarder.AskAll([][]byte{[]byte("HELLO")})
	if err != nil && t.Learned() && !has {
		return nil
	}
	w.writes = slices.ContainsFunc(all, func(r resp.Reply) bool {
		if r.Kind == '-' {
			return has
		}
		return since72(r)
	})
	return err
}

// since72 says that the answer to HELLO names version 7.2 or a newer one.
func since72(hello resp.Reply) bool {
	for i := 0; i+1 < len(hello.Elems); i += 2 {
		if string(hello.Elems[i].Text) != "version" {
			continue
		}
		var major, minor int
		_, err := fmt.Sscanf(string(hello.Elems[i+1].Text), "%d.%d", &major, &minor)
		return err == nil && 1000*major+minor >= 7002
	}
	return false
}

// waitCall is one WAIT or WAITAOF.
type waitCall struct {
	o      *Connections
	cmd    *commandtable.Command
	args   [][]byte
	writes bool // a write goes in front
	reply  []byte
	denied bool // the user may not make the write, as far as it may WAIT
}

// run runs it, and answers the client. It writes as the client's user, or if that may not as the service account.
func (w *waitCall) run() {
	forwarded()
	err := w.o.path.masters(w.o.client.Identity(), w.runAt)
	if w.denied {
		err = w.asService(w.o.path.masters(w.o.AsService(), w.runAt))
	}
	switch {
	case w.o.client.End.Over():
	case err != nil:
		w.o.Failed(w.cmd, err)
	default:
		w.o.client.Give(w.reply)
	}
}

// runAt waits on new connections to each master, which end then.
func (w *waitCall) runAt(all conns) (err error) {
	defer all.end()
	if err = w.begin(all); err == nil {
		w.reply, err = w.wait(all)
	}
	return err
}

// begin makes the present moment the one up to which writes are waited for.
func (w *waitCall) begin(all conns) error {
	asked := all.send(resp.AppendCommand(nil, nothing(w.cmd)...), 0) // WAIT's own refusal comes before that of a write
	var written []*dedicated.Reply
	if w.writes {
		written = all.send(writeNothing, 0)
	}
	most := w.cmd.WaitsFor(w.args)
	if most > 0 {
		most = max(most, backend.QuestionTime) // a short wait is no reason to have no answer from a machine that is busy
	}
	if err := w.await(all, most); err != nil {
		return err
	}
	_, err := all.answers(asked)
	if !w.writes || upstream.Refused(err) != nil {
		return err
	}
	if err == nil {
		_, err = all.answers(written)
	}
	if errors.Is(err, upstream.ErrTimeout) {
		return &upstream.ReplyError{Line: "ERR Redis has made no write in time: " + w.needs()}
	}
	if refusal := upstream.Refused(err); refusal != nil {
		w.denied = strings.HasPrefix(refusal.Line, "NOPERM")
		return &upstream.ReplyError{Line: strings.TrimSuffix(refusal.Line, ".") + ": " + w.needs()}
	}
	return err
}

// needs is why a write is made.
func (w *waitCall) needs() string {
	return w.cmd.Title() + " needs a write of lockproxy's own in front, on Redis 7.2 and newer"
}

// asService returns err, which the service account got, as it is to be told to a client whose own user may not write.
func (w *waitCall) asService(err error) error {
	if !client.Denied(err) {
		return err
	}
	return &upstream.ReplyError{Line: "NOPERM " + w.needs() +
		": this user lacks +function|restore, and the service account lacks that or +" + w.cmd.Name}
}

// wait has all masters wait.
func (w *waitCall) wait(all conns) ([]byte, error) {
	sent := all.send(resp.Command(w.args), w.cmd.WaitsFor(w.args))
	if err := w.await(all, 0); err != nil {
		return nil, err
	}
	replies, err := all.answers(sent)
	if err != nil {
		return nil, err
	}
	return least(replies), nil
}

// await waits for all replies, at most for so long; 0: for as long as it takes.
func (w *waitCall) await(all conns, most time.Duration) error {
	if all.await(most) {
		return nil
	}
	return &upstream.NotSentError{Cause: dedicated.ErrGone}
}

// least is the smallest of the masters' answers, number by number.
func least(all []resp.Reply) []byte {
	first := all[0]
	if len(first.Elems) == 0 {
		return slices.MinFunc(all, func(a, b resp.Reply) int { return a.Int() - b.Int() }).Raw
	}
	out := resp.AppendArray(nil, len(first.Elems))
	for i, e := range first.Elems {
		n := e.Int()
		for _, r := range all[1:] {
			if i < len(r.Elems) {
				n = min(n, r.Elems[i].Int())
			}
		}
		out = resp.AppendInt(out, int64(n))
	}
	return out
}
