package own

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// WAIT and WAITAOF of Redis wait for the writes of the connection on which they come. The client's own writes went over other connections.
// Before 7.2 every command makes the present moment the one up to which a connection waits, so a WAIT of ours in front is enough. Since
// then only a write does: see docs/adr/0032-wait-follows-a-write.md.

// noFunctions is what FUNCTION DUMP tells where there are no functions. To restore it adds none and touches no key, and is a write all the
// same: it goes to replicas and into the AOF.
const noFunctions = "\n\x00]\x9b\\@\x0f\x7f\xa2\xda"

var writeNothing = resp.AppendCommand(nil, "FUNCTION", "RESTORE", noFunctions)

// waits runs a WAIT or WAITAOF that needs a write in front. false: it is run as other commands are. p is the client's own connection, nil if
// it has none.
func (o *Connections) waits(p *conn, cmd redcon.Command, c *commandtable.Command) (taken bool) {
	switch {
	case c.Conn != commandtable.ConnWait, !counts(c, cmd.Args): // Redis refuses it
		return false
	case !p.Settled():
		return true
	case p != nil && p.Status().Ended, o.path.mutes(p, c):
		return false
	}
	w := &waitCall{o: o, cmd: c, args: cmd.Args}
	switch needs, err := w.needsWrite(); {
	case err == nil && !needs:
		return false
	case p.InTransaction():
		p.barAs("ERR " + c.Title() + " inside a transaction is not supported by lockproxy on Redis 7.2 and newer: send it after EXEC")
	case err != nil:
		o.Failed(c, err)
	default:
		w.afterWrite()
	}
	return true
}

// waitForNothing is for a Redis before 7.2, which waits for what was written up to the connection's last command: this one makes that now. A
// user who may wait may do this. A WAIT that does not run at once needs none.
func (p *conn) waitForNothing(c *commandtable.Command) {
	if !p.Settled() {
		return
	}
	if now := p.Status(); now.Multi || now.Mute {
		return
	}
	p.Tell(nothing(c)...)
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

// needsWrite says that at one of the masters WAIT needs a write in front. It asks each time, since another server may stand there by now.
// Every user may ask HELLO. Where that has no answer the table of commands decides: WAITAOF came with the same version.
func (w *waitCall) needsWrite() (bool, error) {
	t := w.o.Routes.Load().Table
	told := t.Lookup([]byte("waitaof"))
	has := told != nil && told.Spec != nil
	all, err := w.o.forwarder.AskAll([][]byte{[]byte("HELLO")})
	if err != nil && t.Learned() && !has {
		return false, nil
	}
	return slices.ContainsFunc(all, func(r resp.Reply) bool { return since72(r) || r.Kind == '-' && has }), err
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

// waitCall is one WAIT or WAITAOF, on connections that it alone has.
type waitCall struct {
	o     *Connections
	cmd   *commandtable.Command
	args  [][]byte
	conns []*conn // to each master
	reply []byte
}

// afterWrite runs it, and answers the client.
func (w *waitCall) afterWrite() {
	forwarded()
	defer w.end()
	reply, err := w.run()
	switch {
	case w.o.client.End.Over():
	case err != nil:
		w.o.Failed(w.cmd, err)
	default:
		w.o.client.Give(reply)
	}
}

// run writes as the client's user, or if that may not as the service account, and waits then.
func (w *waitCall) run() ([]byte, error) {
	err := w.o.path.masters(w.o.client.Identity(), w.runAt)
	if refusal, ok := err.(*writeRefusal); ok && strings.HasPrefix(refusal.Line, "NOPERM") {
		err = w.asService(w.o.path.masters(w.o.AsService(), w.runAt))
	}
	return w.reply, err
}

// writeRefusal is an error that Redis has for the write, and not for WAIT.
type writeRefusal struct{ *upstream.ReplyError }

// Unwrap makes it a *upstream.ReplyError, too.
func (r *writeRefusal) Unwrap() error { return r.ReplyError }

// runAt writes and waits on new connections, which end if that fails.
func (w *waitCall) runAt(conns []*conn) error {
	w.conns = conns
	err := w.write()
	if err == nil {
		w.reply, err = w.wait()
	}
	if err != nil {
		w.end()
	}
	return err
}

// write makes a write.
func (w *waitCall) write() error {
	asked := w.send(resp.AppendCommand(nil, nothing(w.cmd)...), 0) // WAIT's own refusal comes before that of a write
	written := w.send(writeNothing, 0)
	most := w.cmd.WaitsFor(w.args)
	if most > 0 {
		most = max(most, backend.QuestionTime) // a short wait is no reason to have no answer from a machine that is busy
	}
	if err := w.await(most); err != nil {
		return err
	}
	if _, err := w.answers(asked); err != nil {
		return err
	}
	_, err := w.answers(written)
	if refusal := upstream.Refused(err); refusal != nil {
		line := strings.TrimSuffix(refusal.Line, ".") + ": " + w.needs()
		return &writeRefusal{&upstream.ReplyError{Line: line}}
	}
	return err
}

// needs is why a write is made.
func (w *waitCall) needs() string {
	return w.cmd.Title() + " needs a write of lockproxy's own in front, on Redis 7.2 and newer"
}

// asService returns err, which the service account got, as it is to be told to a client whose own user may not write.
func (w *waitCall) asService(err error) error {
	refusal := upstream.Refused(err)
	if refusal == nil {
		return err
	}
	switch code, _, _ := strings.Cut(refusal.Line, " "); code {
	case "NOPERM", "NOAUTH", "WRONGPASS":
		return &upstream.ReplyError{Line: "NOPERM " + w.needs() + ": this user lacks +function|restore, and the service account lacks that or +" + w.cmd.Name}
	}
	return err
}

// wait has all masters wait.
func (w *waitCall) wait() ([]byte, error) {
	sent := w.send(resp.Command(w.args), w.cmd.WaitsFor(w.args))
	if err := w.await(0); err != nil {
		return nil, err
	}
	all, err := w.answers(sent)
	if err != nil {
		return nil, err
	}
	return least(all), nil
}

// send sends a command to all masters, which may wait for so long; 0: for ever.
func (w *waitCall) send(raw []byte, wait time.Duration) []*dedicated.Reply {
	all := make([]*dedicated.Reply, len(w.conns))
	for i, p := range w.conns {
		all[i] = p.Own(&dedicated.Reply{Wait: dedicated.Wait{Blocks: true, For: wait}}, raw)
	}
	return all
}

// await waits for all replies, at most for so long; 0: for as long as it takes.
func (w *waitCall) await(most time.Duration) error {
	for _, p := range w.conns {
		p.Flush()
	}
	come := true
	w.o.client.Watch(func(ctx context.Context) {
		if most > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, most)
			defer cancel()
		}
		for _, p := range w.conns {
			come = come && p.Await(ctx)
		}
	})
	switch {
	case come:
		return nil
	case w.o.client.End.Over():
		return &upstream.NotSentError{Cause: dedicated.ErrGone}
	}
	return &upstream.ReplyError{Line: "ERR Redis has made no write in time: " + w.needs()}
}

// answers returns the replies, or an error that is among them.
func (w *waitCall) answers(to []*dedicated.Reply) ([]resp.Reply, error) {
	all := make([]resp.Reply, len(to))
	for i, p := range w.conns {
		reply, err := p.Answer(to[i])
		if err == nil {
			err = upstream.ErrorIn(reply)
		}
		if err != nil {
			return nil, err
		}
		all[i], _ = resp.ParseReply(reply)
		all[i].Raw = reply
	}
	return all, nil
}

// end gives the connections back, or closes those on which something is still under way.
func (w *waitCall) end() {
	closeAll(w.conns)
	w.conns = nil
}

// closeAll gives connections beside the client's own back, or closes those on which replies are pending.
func closeAll(all []*conn) {
	for _, p := range all {
		p.Release()
		p.Close()
	}
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
