package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lockproxy/lockproxy/internal/config"
	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/internal/logqueue"
)

// eventsWaiting is how many bytes of events may wait to be written.
const eventsWaiting = 4 << 20

// eventLog is the process's events, and where lines of them go.
type eventLog struct {
	*events.Log
	file  *eventFile      // nil: there are no lines
	lines *logqueue.Queue // before it, so that nobody waits for a disk
}

// openEvents opens the file that settings name.
func openEvents(set config.Log, log *slog.Logger) (l eventLog, err error) {
	if set.Events == "" {
		l.Log = events.New(nil)
	} else {
		l.file = &eventFile{name: set.Events, log: log}
		if err := l.file.reopen(); err != nil {
			return l, fmt.Errorf("event-log: %w", err)
		}
		l.lines = logqueue.New(l.file, eventsWaiting, droppedEvents)
		l.Log = events.New(l.lines)
	}
	l.SetLong(set.EventWait)
	return l, nil
}

// droppedEvents is the line that says how many were not written.
func droppedEvents(lines int) []byte {
	line, _ := json.Marshal(map[string]any{"at": time.Now().UTC(), "event": "dropped", "more": lines}) // it never fails
	return append(line, '\n')
}

// close writes what is still to be written, unless that takes too long.
func (l eventLog) close() {
	if l.Log != nil {
		l.Log.Close()
	}
	if l.lines != nil {
		l.lines.Close(logTime)
	}
}

// reopen opens the file anew: it may have another name now.
func (l eventLog) reopen() error {
	if l.file == nil {
		return nil
	}
	return l.file.reopen()
}

// note notes what has happened to the process.
func (l eventLog) note(k events.Kind, reason string) {
	l.Add(events.Event{At: time.Now(), Kind: k, Reason: reason})
}

// eventFile is a file to which lines are appended. The queue alone writes to it.
type eventFile struct {
	name string
	log  *slog.Logger
	now  atomic.Pointer[os.File]
	cut  *os.File // whose last line is not whole; nil: it is
	bad  bool     // nothing could be written, and the log has said so
}

// reopen has what comes from now on go to the file that has the name now; if it cannot be opened all stays as it was.
func (f *eventFile) reopen() error {
	if f.name == "stdout" {
		f.now.Store(os.Stdout)
		return nil
	}
	// A pipe that nobody reads is an error, and not waited for.
	file, err := os.OpenFile(f.name, os.O_APPEND|os.O_CREATE|os.O_WRONLY|syscall.O_NONBLOCK, 0o600)
	if errors.Is(err, syscall.ENXIO) {
		err = &fs.PathError{Op: "open", Path: f.name, Err: errors.New("it is a pipe that nobody reads, or a socket")}
	}
	if err != nil {
		return err
	}
	if was := f.now.Swap(file); was != nil {
		was.Close()
	}
	return nil
}

// Write implements io.Writer. The log has a line for the first of many failures.
func (f *eventFile) Write(p []byte) (n int, err error) {
	for {
		to := f.now.Load()
		var some int
		some, err = f.append(to, p[n:])
		if n += some; err == nil || to == f.now.Load() {
			break // else the rest goes to the file that has come in its place
		}
	}
	if err != nil && !f.bad {
		f.log.Error("events cannot be written", "event-log", f.name, "error", err)
	}
	f.bad = err != nil
	return n, err
}

// append writes to a file, on a line of its own.
func (f *eventFile) append(to *os.File, p []byte) (n int, err error) {
	if f.cut == to {
		if _, err := to.WriteString("\n"); err != nil {
			return 0, err
		}
	}
	f.cut = nil
	if n, err = to.Write(p); n > 0 && p[n-1] != '\n' {
		f.cut = to
	}
	return n, err
}
