package redisson

import (
	"strings"
	"testing"
	"time"
)

// both are the two locks of a read/write lock.
func (e *env) both() (read, write lock) {
	name := e.name("rw")
	return lock{"read", name}, lock{"write", name}
}

// shares: readers of both sides are in together, and the last one out wakes the writer.
func shares(t *testing.T, e *env, pair, _ string) {
	a, b, writer := e.first(t, pair), e.secondSide(t, pair), e.secondSide(t, pair)
	for range 3 {
		read, write := e.both()
		hold(t, a, read, long)
		hold(t, b, read, long)
		got := start(func() error { _, err := writer.lock(write, long); return err })
		e.queued(t, write, 1)
		free(t, b, read)
		time.Sleep(100 * time.Millisecond)
		if !got.waiting() {
			t.Fatal("a writer is in beside a reader")
		}
		released := time.Now()
		free(t, a, read)
		e.woke(t, pair+": the last reader", got.ok(t, "the writer").Sub(released))
		free(t, writer, write)
	}
}

// letsReadersIn: a writer's unlock wakes all readers.
func letsReadersIn(t *testing.T, e *env, pair, _ string) {
	writer := e.first(t, pair)
	readers := []side{e.secondSide(t, pair), e.secondSide(t, pair), e.secondSide(t, pair)}
	read, write := e.both()
	hold(t, writer, write, long)
	var all []later
	for _, s := range readers {
		all = append(all, start(func() error { _, err := s.lock(read, long); return err }))
	}
	e.queued(t, read, 1)
	time.Sleep(300 * time.Millisecond) // the others cannot be seen in Redis
	released := time.Now()
	free(t, writer, write)
	for _, reader := range all {
		e.woke(t, pair+": a writer's unlock", reader.ok(t, "a reader").Sub(released))
	}
	if n := e.holds(t, read.name); n != len(readers) {
		t.Errorf("%d readers are in, want %d", n, len(readers))
	}
	for _, s := range readers {
		free(t, s, read)
	}
}

// downgrades: a writer that reads as well and stops writing lets readers in, and no writers.
func downgrades(t *testing.T, e *env, pair, _ string) {
	a, reader, writer := e.first(t, pair), e.secondSide(t, pair), e.secondSide(t, pair)
	read, write := e.both()
	hold(t, a, write, long)
	hold(t, a, read, long)
	tries(t, reader, read, false)
	free(t, a, write)
	tries(t, reader, read, true)
	tries(t, writer, write, false)
	free(t, a, read)
	tries(t, writer, write, false)
	free(t, reader, read)
	tries(t, writer, write, true)
	free(t, writer, write)
}

// downgradeWakes: readers that wait hear of a downgrade. Redisson itself says nothing then.
func downgradeWakes(t *testing.T, e *env, pair, _ string) {
	a, reader := e.first(t, pair), e.secondSide(t, pair)
	for range 3 {
		read, write := e.both()
		hold(t, a, write, long)
		hold(t, a, read, long)
		got := start(func() error { _, err := reader.lock(read, long); return err })
		e.queued(t, read, 1)
		released := time.Now()
		free(t, a, write)
		e.woke(t, pair+": a downgrade", got.ok(t, "the reader").Sub(released))
		free(t, reader, read)
		free(t, a, read)
	}
}

// noUpgrade: who only reads does not get the write lock, and loses nothing by trying.
func noUpgrade(t *testing.T, e *env, pair, _ string) {
	a, writer := e.first(t, pair), e.secondSide(t, pair)
	read, write := e.both()
	hold(t, a, read, long)
	won, err := a.try(write, 200*time.Millisecond, long)
	if won || err != nil && !strings.HasPrefix(err.Error(), "DEADLOCK") {
		t.Fatalf("an upgrade: %v %v", won, err)
	}
	tries(t, writer, write, false)
	free(t, a, read)
	tries(t, writer, write, true)
	free(t, writer, write)
}

// lastLease: when the one reader has gone and the other's lease has ended, the writer gets in.
func lastLease(t *testing.T, e *env, pair, _ string) {
	a, b, writer := e.first(t, pair), e.secondSide(t, pair), e.secondSide(t, pair)
	read, write := e.both()
	hold(t, a, read, long)
	hold(t, b, read, 3*time.Second)
	free(t, a, read)
	tries(t, writer, write, false)
	began := time.Now()
	hold(t, writer, write, long)
	if took := time.Since(began); took > poll/2 {
		t.Errorf("the writer got in after %v", took)
	}
	free(t, writer, write)
}
