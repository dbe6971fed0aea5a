// Package runlock is `lockproxy run`: a command that runs while locks are held. Their owner has a name, so that it may be renewed through any
// proxy: with a connection's lock each upgrade of a proxy would end all commands. It asks a proxy, since an engine of its own would need
// Redis' password on every machine that runs jobs. After kill -9 of run its locks are held until their lease is over.
package runlock

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
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
	said = logqueue.New(os.Stderr, logqueue.Usual, dropped)
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
	defer h.proxy.Close()
	return h.runCommand(file, o.command, signals)
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
	answerTime = 10 * time.Second // of a proxy that is asked something that does not wait
	tryAgain   = time.Second      // after the proxy could not be asked
	sayEvery   = time.Minute      // why a lock is still waited for
)

var errBusy = errors.New("somebody else holds the lock")

// acquire waits for the locks until a signal comes that ends this process. Without them there is an exit code.
func acquire(o commandLine, signals <-chan os.Signal) (*holder, int) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	h, over, ended := newHolder(o), make(chan int), syscall.Signal(0)
	go h.awaitFor(ctx, over)
	for {
		select {
		case s := <-signals:
			if n, ok := s.(syscall.Signal); ok && ends(n) {
				ended = n
				cancel()
			}
		case code := <-over:
			if ended != 0 {
				code = exitSignals + int(ended)
			}
			switch code {
			case 0:
				return h, 0
			case exitBusy:
			default:
				h.forgetProxy()
			}
			h.proxy.Close()
			return nil, code
		}
	}
}

// awaitFor sends what awaitGrant returns.
func (h *holder) awaitFor(ctx context.Context, over chan<- int) { over <- h.awaitGrant(ctx) }

// awaitGrant waits for the locks until ctx ends, and returns an exit code; 0: they are there.
func (h *holder) awaitGrant(ctx context.Context) int {
	var end time.Time // zero: never
	if h.wait >= 0 {
		end = time.Now().Add(h.wait)
	}
	for said := (time.Time{}); ; {
		err := h.lock(ctx, end)
		over := !end.IsZero() && time.Until(end) <= 0
		if errors.Is(err, errBusy) && !over {
			continue
		}
		switch {
		case err == nil:
			return 0
		case ctx.Err() != nil:
			return exitFailed
		case errors.Is(err, errBusy):
			say("%s: held by somebody else", h.names())
			return exitBusy
		case over, !mayPass(err) && !isLoss(err):
			say("no lock: %v", err)
			return exitFailed
		}
		if said.IsZero() || time.Since(said) > sayEvery {
			say("%v; trying again", err)
			said = time.Now()
		}
		retry.Sleep(ctx, tryAgain, nil)
	}
}

// holder holds the locks, as far as the time goes. Their owner has a name, so that any proxy may be asked for them, and what is asked may be
// asked again.
type holder struct {
	commandLine
	owner  string
	tokens []string  // of the locks; none: others may hold it, too
	since  time.Time // they were there
	until  time.Time // the locks are not given to others before
	lost   string    // why they are; "": they are not
}

func newHolder(o commandLine) *holder {
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	owner := fmt.Sprintf("run/%.64s/%d/%s", host, os.Getpid(), rand.Text())
	return &holder{commandLine: o, owner: owner}
}

// patience is how long the proxy may take to renew: within two thirds of a lease it may be asked twice.
func (h *holder) patience() time.Duration { return min(h.lease/4, answerTime) }

// lock takes the locks, and then sets their leases anew: how long the LOCK waited on its way nobody knows, while of a RENEW it is
// known when it was sent. Several locks are waited for in pieces, since a wait for them is shorter than their lease.
func (h *holder) lock(ctx context.Context, end time.Time) error {
	words, limit := append(h.takeVerb(), "OWNER", h.owner, "PX", millis(h.length(time.Now()))), answerTime
	if h.verb != "RLOCK" && h.limit == 0 {
		words = append(words, "FENCE")
	}
	switch left := time.Until(end); {
	case len(h.keys) > 1 && (end.IsZero() || left > h.lease/2):
		words, limit = append(words, "BLOCK", millis(h.lease/2)), h.lease/2+answerTime
	case end.IsZero():
		words, limit = append(words, "BLOCK", "0"), 0
	case left > 0:
		words, limit = append(words, "BLOCK", millis(left)), left+answerTime
	}
	replies, err := h.askProxy(ctx, limit, words)
	switch {
	case err != nil:
		return err
	case replies[0].Null:
		return errBusy
	}
	h.tokens = tokens(replies[0])
	h.since = time.Now()
	r := h.renew(ctx, h.lease)
	h.renewed(r)
	return r.err
}

// length is how long a lease that begins then is: as long as --at-least wants it, even if no proxy is there at the
// command's end. A lease that a quorum does not give is refused before the command begins.
func (h *holder) length(from time.Time) time.Duration {
	left := h.atLeast
	if !h.since.IsZero() {
		left -= from.Sub(h.since)
	}
	return max(h.lease, left)
}

// tokens are the fencing tokens in the reply of a verb; none: it has none.
func tokens(r resp.Reply) (all []string) {
	if r.Kind == ':' {
		return []string{string(r.Text)}
	}
	for _, e := range r.Elems {
		all = append(all, string(e.Text))
	}
	return all
}

// each is a command for each lock.
func (h *holder) each(verb string, options ...string) (all [][]string) {
	for _, key := range h.keys {
		all = append(all, append([]string{verb, key, "OWNER", h.owner}, options...))
	}
	return all
}

// runCommand runs the command, and gives the locks back after it.
func (h *holder) runCommand(file string, command []string, signals <-chan os.Signal) int {
	env := append(os.Environ(), "LOCKPROXY_LOCK="+strings.Join(h.keys, "\n"), "LOCKPROXY_TOKEN="+strings.Join(h.tokens, "\n"))
	c, err := begin(file, command, env)
	if err != nil {
		say("%v", err)
		h.forgetProxy()
		return exitCannot
	}
	stop, renewals := make(chan struct{}), make(chan renewal)
	go h.keepLock(stop, renewals)
	h.watch(c, signals, renewals)
	close(stop)
	for r := range renewals {
		h.renewed(r)
	}
	if h.lost == "" {
		h.giveBack()
	}
	if h.lost != "" {
		h.forgetProxy()
		say("%s: lost while the command ran: %s", h.names(), h.lost)
		return exitLost
	}
	return c.code
}

// watch passes signals on until the command has ended, and after a loss all that it has started. A third of the lease before somebody else
// could have a lock the command is asked to stop, and it is killed before somebody else can have it.
func (h *holder) watch(c *command, signals <-chan os.Signal, renewals <-chan renewal) {
	stop := time.NewTimer(time.Until(h.until) - h.lease/3)
	defer stop.Stop()
	kill := time.NewTimer(0)
	<-kill.C
	defer kill.Stop()
	stopping, killed := false, false
	lose := func(why string) {
		h.lost, stopping = why, true
		left := min(h.lease/3, time.Until(h.until))
		killed = left <= 0 // this process did not run for a while
		err := c.stop(killed)
		kill.Reset(left)
		say("%s: lost, stopping the command: %s", h.names(), why)
		complain(err)
	}
	for {
		select {
		case <-c.done:
			if stopping && !killed {
				complain(c.endGroup(kill.C, signals))
			}
			return
		case <-c.suspended:
			c.suspend()
			if !stopping && time.Until(h.until) <= 0 {
				lose("it could not be renewed while the command was suspended")
			}
		case s := <-signals:
			c.pass(s)
		case r, open := <-renewals:
			if !open {
				renewals = nil
				break
			}
			h.renewed(r)
			stop.Reset(time.Until(h.until) - h.lease/3)
			if !stopping && h.lost != "" {
				lose(h.lost)
			}
		case <-stop.C:
			if !stopping {
				lose("it could not be renewed")
			}
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

// renewed takes what became of a renewal.
func (h *holder) renewed(r renewal) {
	switch {
	case r.err == nil:
		h.until = r.sent.Add(h.length(r.sent))
	case h.lost == "" && isLoss(r.err):
		h.lost = r.err.Error()
	}
}

// giveBack gives the locks back, or has them end when --at-least is over. If that fails they end with their leases.
func (h *holder) giveBack() {
	commands := h.each("UNLOCK")
	if left := h.atLeast - time.Since(h.since); left > 0 {
		commands = h.each("RENEW", "PX", millis(left+time.Millisecond))
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	for again := false; ; again = true {
		_, err := h.askProxy(ctx, h.patience(), commands...)
		switch {
		case err == nil:
			return
		case isLoss(err):
			if !again { // it may be the first try that gave it back
				h.lost = err.Error()
			}
			return
		case ctx.Err() != nil || !mayPass(err):
			say("%s: not given back, free when the lease is over: %v", h.names(), err)
			return
		}
		retry.Sleep(ctx, tryAgain, nil)
	}
}

// forgetProxy gives back what may have been taken, as by a LOCK whose reply was not awaited.
func (h *holder) forgetProxy() {
	h.proxy.Close() // a LOCK that still waits ends
	ctx, cancel := context.WithTimeout(context.Background(), forgetTime)
	defer cancel()
	_, _ = h.askProxy(ctx, 0, h.each("UNLOCK")...) // if that fails the lease does it
}

// forgetTime is how long a wait that is given up may take to say so.
const forgetTime = 2 * time.Second

// Usage prints what `lockproxy run --help` shows.
func Usage(w io.Writer) { fmt.Fprint(w, help) }
