// Package runlock is `lockproxy run`: a command that runs while a lock is held. The lock belongs to this process' connection to a
// proxy, so that it is free as soon as the process is gone, however it went. See docs/adr/0028-run-through-a-proxy.md.
package runlock

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/lockproxy/lockproxy/internal/logqueue"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// Exit codes beside the command's own. They are those of timeout(1) where it has the same.
const (
	exitLost    = 123 // the lock was lost, and the command stopped
	exitBusy    = 124 // somebody else held the lock for as long as --wait
	exitFailed  = 125 // no lock, for another reason
	exitCannot  = 126 // the command cannot be run
	exitNoFile  = 127 // there is no such command
	exitSignals = 128 // and the number of the signal that ended the command, or this process before the command began
)

// Main takes the lock that args name, runs the command in args while it has it, and returns the exit code.
func Main(args []string) int {
	logqueue.OutliveReader()
	said = logqueue.New(os.Stderr, dropped)
	defer said.Close(sayTime)
	o, err := parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		Usage(os.Stdout)
		return 0
	case err != nil:
		say("%v", err)
		return exitFailed
	}
	file, err := exec.LookPath(o.command[0])
	if err != nil {
		say("%v", err)
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			return exitNoFile
		}
		return exitCannot
	}
	runtime.LockOSThread() // the command is killed when the thread that has started it is gone
	signals := make(chan os.Signal, 16)
	for _, s := range passedOn() {
		if !signal.Ignored(s) { // by nohup(1), or by a shell that runs this in the background: so it is for the command, too
			signal.Notify(signals, s)
		}
	}
	h, code := acquire(o, signals)
	if h == nil {
		return code
	}
	defer h.proxy.close()
	return h.run(file, o.command, signals)
}

// said is what goes to standard error. Nothing waits for it: a command whose lock is lost is stopped also when nobody reads there.
var said *logqueue.Queue

// sayTime is how long the end waits for who reads it.
const sayTime = time.Second

func say(format string, args ...any) { fmt.Fprintf(said, "lockproxy run: "+format+"\n", args...) }

func dropped(lines int) []byte {
	return fmt.Appendf(nil, "lockproxy run: %d lines could not be written here\n", lines)
}

const (
	dialTime   = 5 * time.Second
	answerTime = 10 * time.Second // of a proxy that is asked something that does not wait
	tryAgain   = time.Second      // after a connection was lost while the lock was waited for
)

var errBusy = errors.New("somebody else holds the lock")

// acquire waits for the lock until a signal comes that ends this process. Without it there is an exit code.
func acquire(o options, signals <-chan os.Signal) (*holder, int) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	over, watched := make(chan struct{}), make(chan struct{})
	go cancelOnSignal(signals, over, watched, cancel)
	h, code := await(ctx, o)
	close(over)
	<-watched
	var ended *signalError
	if errors.As(context.Cause(ctx), &ended) {
		if h != nil {
			h.proxy.close()
		}
		return nil, exitSignals + int(ended.signal)
	}
	return h, code
}

// await waits for the lock until ctx ends.
func await(ctx context.Context, o options) (*holder, int) {
	var end time.Time
	if o.wait > 0 {
		end = time.Now().Add(o.wait)
	}
	for reached := false; ; {
		p, err := dial(ctx, o.target)
		if err == nil {
			reached = true
			h := &holder{proxy: p, options: o}
			if err = h.lock(ctx, end); err == nil {
				return h, 0
			}
			p.close()
		}
		switch {
		case ctx.Err() != nil:
			return nil, exitFailed
		case errors.Is(err, errBusy):
			say("%s is held by somebody else", o.key)
			return nil, exitBusy
		case !reached || o.wait == 0 || !worthAnotherTry(err):
			say("%v", err)
			return nil, exitFailed
		case !end.IsZero() && !time.Now().Add(tryAgain).Before(end):
			say("no lock in time: %v", err)
			return nil, exitBusy
		}
		say("%v; trying again", err)
		retry.Sleep(ctx, tryAgain, nil)
	}
}

// signalError is the signal that ended a wait.
type signalError struct{ signal syscall.Signal }

func (e *signalError) Error() string { return e.signal.String() }

// cancelOnSignal ends the wait for the lock at a signal that would have ended this process.
func cancelOnSignal(signals <-chan os.Signal, over <-chan struct{}, watched chan<- struct{}, cancel func(error)) {
	defer close(watched)
	for {
		select {
		case s := <-signals:
			if n, ok := s.(syscall.Signal); ok && ends(n) {
				cancel(&signalError{n})
				return
			}
		case <-over:
			return
		}
	}
}

// holder holds the lock, as far as the time goes.
type holder struct {
	proxy *proxy
	options
	token string
	until time.Time // the lock is not given to others before
	sent  time.Time // when the RENEW under way was sent; zero: none is
	lost  string    // why the lock is; "": it is not
}

// lock takes the lock, and then sets its lease anew: how long the LOCK waited on its way nobody knows, while of a RENEW it is
// known when it was sent.
func (h *holder) lock(ctx context.Context, end time.Time) error {
	words, limit := []string{h.verb, h.key, "PX", millis(h.lease), "FENCE"}, time.Duration(0)
	switch {
	case h.wait < 0:
		words = append(words, "BLOCK", "0")
	case h.wait > 0:
		left := max(time.Until(end), time.Millisecond)
		words, limit = append(words, "BLOCK", millis(left)), left+answerTime
	default:
		limit = answerTime
	}
	reply, err := h.proxy.call(ctx, limit, words...)
	if err != nil {
		return err
	}
	if reply.Null {
		return errBusy
	}
	h.token = string(reply.Text)
	sent := time.Now()
	if _, err = h.proxy.call(ctx, h.lease, h.renewal()...); err != nil {
		return err
	}
	h.until = sent.Add(h.lease)
	return nil
}

func (h *holder) renewal() []string { return []string{"RENEW", h.key, "PX", millis(h.lease)} }

// run runs the command, and gives the lock back after it.
func (h *holder) run(file string, command []string, signals <-chan os.Signal) int {
	c, err := begin(file, command, append(os.Environ(), "LOCKPROXY_LOCK="+h.key, "LOCKPROXY_TOKEN="+h.token))
	if err != nil {
		say("%v", err)
		h.unlock()
		return exitCannot
	}
	h.watch(c, signals)
	if h.lost == "" {
		h.unlock()
	}
	if h.lost != "" {
		say("the lock %s was lost while the command ran: %s", h.key, h.lost)
		return exitLost
	}
	return c.code()
}

// watch passes signals on and renews the lock until the command has ended, and after a loss all that it has started. A third of the
// lease before somebody else could have the lock the command is asked to stop, and it is killed before somebody else can have it.
func (h *holder) watch(c *command, signals <-chan os.Signal) {
	renew := time.NewTimer(h.lease / 3)
	defer renew.Stop()
	stop := time.NewTimer(time.Until(h.until) - h.lease/3)
	defer stop.Stop()
	kill := time.NewTimer(0)
	<-kill.C
	defer kill.Stop()
	replies, ended, killed := h.proxy.replies, h.proxy.ended, false
	lose := func(why string) {
		if h.lost == "" {
			h.lost = why
			left := min(h.lease/3, time.Until(h.until))
			killed = left <= 0 // this process did not run for a while
			err := c.stop(killed)
			kill.Reset(left)
			say("the lock %s is lost, stopping the command: %s", h.key, why)
			complain(err)
		}
	}
	for {
		select {
		case <-c.done:
			if h.lost != "" && !killed {
				complain(c.endGroup(kill.C, signals))
			}
			return
		case <-c.suspended:
			c.suspend()
			if time.Until(h.until) <= 0 {
				lose("it could not be renewed while the command was suspended")
			}
		case s := <-signals:
			c.pass(s)
		case <-renew.C:
			if h.sent.IsZero() && h.lost == "" {
				h.sent = time.Now()
				h.proxy.send(h.renewal()...)
			}
		case r := <-replies:
			why := h.renewed(r)
			if why != "" {
				lose(why)
			}
			if r.Kind != '-' {
				stop.Reset(time.Until(h.until) - h.lease/3)
				renew.Reset(h.lease / 3)
			} else {
				renew.Reset(tryAgain)
			}
		case why := <-h.proxy.lost:
			lose(why)
		case <-ended:
			ended = nil
			lose(fmt.Sprintf("the connection to the proxy ended (%v)", h.proxy.err))
		case <-stop.C:
			lose("it could not be renewed")
		case <-kill.C:
			complain(c.stop(true))
			killed = true
		}
	}
}

// complain says of a command that could not be sent a signal what that is. That it has ended meanwhile is no fault.
func complain(err error) {
	if errors.Is(err, os.ErrPermission) {
		say("the command cannot be stopped, it runs as another user, and now without the lock")
	}
}

// renewed takes the answer to a RENEW, and says why the lock is lost if it is.
func (h *holder) renewed(r resp.Reply) (why string) {
	sent := h.sent
	h.sent = time.Time{}
	switch {
	case r.Kind != '-':
		h.until = sent.Add(h.lease)
	case lossLine(string(r.Text)):
		return string(r.Text)
	default:
		say("the lock is not renewed: %s", r.Text)
	}
	return ""
}

// unlock gives the lock back. If that fails the end of the connection does.
func (h *holder) unlock() {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	if !h.sent.IsZero() {
		if _, err := h.proxy.answer(ctx, answerTime); err != nil && isLoss(err) {
			h.lost = err.Error()
			return
		}
	}
	if _, err := h.proxy.call(ctx, answerTime, "UNLOCK", h.key); err != nil && isLoss(err) {
		h.lost = err.Error()
	}
}

// Usage prints what `lockproxy run --help` shows.
func Usage(w io.Writer) { fmt.Fprint(w, help) }
