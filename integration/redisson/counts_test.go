package redisson

import (
	"fmt"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
)

// counts has two JVMs and four lockproxies count up under one lock, in two steps that only the lock makes one.
func counts(t *testing.T, e *env, _, kind string) {
	const each, rounds = 2, 120
	e.second.Lock()
	defer e.second.Unlock()
	l, counter := e.lock(kind), e.name("counter")
	var all []later
	for _, j := range []*jvm{e.java, e.jvm(t)} {
		for i := range each {
			name := fmt.Sprint("counting-", counter, i)
			all = append(all, start(func() error {
				_, err := j.call(beside, name, "hammer", l.kind, l.name, counter, rounds)
				return err
			}))
		}
	}
	for _, p := range append(e.proxies[:2:2], e.proxy(t), e.proxy(t)) {
		for range each {
			s := dial(t, p.Addr())
			all = append(all, start(func() error { return s.hammer(l, counter, rounds) }))
		}
	}
	began := time.Now()
	for i, worker := range all {
		worker.ok(t, fmt.Sprint("worker ", i))
	}
	want := rounds * len(all)
	if kind == "read/write" {
		want /= writing
	}
	n, err := redis.Int(e.server(t, counter).Do(t, "GET", counter), nil)
	if n != want || err != nil {
		t.Errorf("counted to %d of %d: %v", n, want, err)
	}
	t.Logf("Redisson %s: %d × %s by %d workers in %v", e.version, n, kind, len(all), time.Since(began).Round(time.Millisecond))
}

// writing: of so many rounds of a read/write lock one writes.
const writing = 3

// hammer is Main.java's.
func (s *conn) hammer(l lock, counter string, rounds int) error {
	for i := range rounds {
		if err := s.strike(l, counter, i); err != nil {
			return err
		}
	}
	return nil
}

// strike locks, counts, and unlocks once.
func (s *conn) strike(l lock, counter string, i int) error {
	counters := []string{counter}
	if l.kind == "read/write" {
		counters = append(counters, counter+"-again")
		if l.kind = "write"; i%writing != 0 {
			l.kind = "read"
		}
	}
	token, err := s.lock(l, 0)
	if err != nil {
		return err
	}
	switch l.kind {
	case "read":
		err = s.alike(counters)
	case "fenced":
		err = s.rises(counter+"-token", token)
	}
	if err != nil {
		return err
	}
	for _, name := range counters {
		if l.kind == "read" {
			break
		}
		n, err := s.number(name)
		if err != nil {
			return err
		}
		if _, err := s.do("SET", name, n+1); err != nil {
			return err
		}
	}
	return s.unlock(l)
}

// number is the value of a counter, 0 when there is none.
func (s *conn) number(name string) (int64, error) {
	n, err := redis.Int64(s.do("GET", name))
	if err == redis.ErrNil {
		return 0, nil
	}
	return n, err
}

// rises notes a token, which must be above the last.
func (s *conn) rises(name string, token int64) error {
	last, err := s.number(name)
	if err == nil && last >= token {
		err = fmt.Errorf("token %d after %d", token, last)
	}
	if err == nil {
		_, err = s.do("SET", name, token)
	}
	return err
}

// alike: a reader sees no writer half way.
func (s *conn) alike(counters []string) error {
	a, err := s.number(counters[0])
	if err != nil {
		return err
	}
	b, err := s.number(counters[1])
	if err == nil && a != b {
		err = fmt.Errorf("a reader sees %d and %d", a, b)
	}
	return err
}
