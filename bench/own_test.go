package main

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
)

// A connection that has failed keeps no other one from being looked at, and each one that has is counted.
func TestEachConnectionIsLookedAt(t *testing.T) {
	const n = 1600
	var seen [n]atomic.Int64
	err := each(n, func(i int) error {
		seen[i].Add(1)
		if i%100 == 40 {
			return errors.New("reset")
		}
		return nil
	})
	if err == nil || err.Error() != "16 of 1600 connections failed, the first: reset" {
		t.Error(err)
	}
	for i := range seen {
		if times := seen[i].Load(); times != 1 {
			t.Errorf("%d was looked at %d times", i, times)
		}
	}
	if err := each(3, func(int) error { return nil }); err != nil {
		t.Error(err)
	}
}

// The locks that a connection still had before it failed are counted.
func TestEachLockUntilOneFails(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	defer ours.Close()
	go io.Copy(io.Discard, theirs)
	c := &client{Conn: ours, r: bufio.NewReader(strings.NewReader(strings.Repeat(":1\r\n", 40) + "-LOCKLOST it is gone\r\n"))}
	if done, err := c.eachLock(3, "UNLOCK", ":1"); done != 40 || err == nil || !strings.Contains(err.Error(), "LOCKLOST") {
		t.Error(done, err)
	}
}
