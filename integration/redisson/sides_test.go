package redisson

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/integration/harness"
)

// lock is one lock of either side; the name of a multi lock is those of its members with commas.
type lock struct{ kind, name string }

func (l lock) members() []string { return strings.Split(l.name, ",") }

// side is one owner: a thread of Redisson, or a connection to lockproxy. It does one thing at a time.
type side interface {
	// lock waits for ever; a lease of 0 is the watchdog's. The token is 0 but for fenced locks of lockproxy.
	lock(l lock, lease time.Duration) (token int64, err error)
	try(l lock, wait, lease time.Duration) (bool, error)
	token(name string) (int64, error) // lock with a fencing token, watched
	unlock(l lock) error              // errNotHeld when it is somebody else's
	force(l lock) error
}

var errNotHeld = errors.New("not the owner")

// thread is a side in a JVM.
type thread struct {
	j            *jvm
	client, name string
}

func (s *thread) do(command string, l lock, args ...any) (string, error) {
	return s.j.call(s.client, s.name, "lock."+command, append([]any{l.kind, l.name}, args...)...)
}

func (s *thread) lock(l lock, lease time.Duration) (int64, error) {
	if l.kind == "multi" && lease > 0 {
		return 0, s.tryForEver(l, lease) // lock(lease) of a RedissonMultiLock counts its unit again in every round
	}
	_, err := s.do("lock", l, lease.Milliseconds())
	return 0, err
}

func (s *thread) tryForEver(l lock, lease time.Duration) error {
	for {
		if won, err := s.try(l, harness.Patience, lease); won || err != nil {
			return err
		}
	}
}

func (s *thread) try(l lock, wait, lease time.Duration) (bool, error) {
	if wait == 0 && lease == 0 {
		won, err := s.do("once", l)
		return won == "true", err
	}
	won, err := s.do("try", l, wait.Milliseconds(), lease.Milliseconds())
	return won == "true", err
}

func (s *thread) token(name string) (int64, error) {
	text, err := s.do("token", lock{"fenced", name})
	if err != nil {
		return 0, err
	}
	return redis.Int64([]byte(text), nil)
}

func (s *thread) unlock(l lock) error {
	_, err := s.do("unlock", l)
	if err != nil && strings.Contains(err.Error(), "IllegalMonitorState") {
		return errNotHeld
	}
	return err
}

func (s *thread) force(l lock) error {
	done, err := s.do("force", l)
	if err == nil && done != "true" {
		err = fmt.Errorf("forceUnlock says %s", done)
	}
	return err
}

// conn is a side at a lockproxy.
type conn struct{ c redis.Conn }

func dial(t testing.TB, addr string) *conn {
	t.Helper()
	c, err := redis.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &conn{c}
}

// verbs of lockproxy by the kind of a lock, without its name.
var verbs = map[string]string{
	"plain": "LOCK", "fenced": "LOCK", "fair": "FAIRLOCK", "read": "RLOCK", "write": "WLOCK", "multi": "MULTILOCK",
	"limit 1": "LOCK", "limit 5": "LOCK",
}

// words are a verb with the key or keys of a lock.
func words(verb string, l lock) []any {
	if l.kind != "multi" {
		return []any{verb, l.name}
	}
	out := []any{verb, len(l.members())}
	for _, name := range l.members() {
		out = append(out, name)
	}
	return out
}

func (s *conn) do(args ...any) (any, error) {
	return redis.DoWithTimeout(s.c, 4*harness.Patience, args[0].(string), args[1:]...)
}

func (s *conn) take(l lock, lease time.Duration, options ...any) (any, error) {
	args := words(verbs[l.kind], l)
	if lease > 0 {
		args = append(args, "PX", lease.Milliseconds())
	}
	if l.kind == "fenced" {
		args = append(args, "FENCE")
	}
	if places, is := strings.CutPrefix(l.kind, "limit "); is {
		args = append(args, "LIMIT", places)
	}
	return s.do(append(args, options...)...)
}

func (s *conn) lock(l lock, lease time.Duration) (int64, error) {
	reply, err := s.take(l, lease, "BLOCK", 0)
	if l.kind != "fenced" || err != nil {
		return 0, err
	}
	return redis.Int64(reply, nil)
}

func (s *conn) try(l lock, wait, lease time.Duration) (bool, error) {
	var options []any
	if wait > 0 {
		options = []any{"BLOCK", wait.Milliseconds()}
	}
	reply, err := s.take(l, lease, options...)
	return reply != nil && err == nil, err
}

func (s *conn) token(name string) (int64, error) { return s.lock(lock{"fenced", name}, 0) }

func (s *conn) unlock(l lock) error {
	args := words("UNLOCK", l)
	switch l.kind {
	case "read", "write":
		args = append(args, strings.ToUpper(l.kind))
	case "multi":
		args[0] = "MULTIUNLOCK"
	}
	_, err := s.do(args...)
	if err != nil && (strings.HasPrefix(err.Error(), "NOTHELD") || strings.HasPrefix(err.Error(), "LOCKLOST")) {
		return errNotHeld
	}
	return err
}

func (s *conn) force(l lock) error {
	n, err := redis.Int(s.do("UNLOCK", l.name, "FORCE"))
	if err == nil && n != 1 {
		err = fmt.Errorf("UNLOCK … FORCE says %d", n)
	}
	return err
}
