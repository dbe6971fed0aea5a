package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/lockproxy/lockproxy/internal/config"
	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/internal/logqueue"
)

// eventsWaiting is how many bytes of events may wait to be written.
const eventsWaiting = 4 << 20

// eventLog is the process's events.
type eventLog struct {
	*events.Log
	lines *logqueue.Queue // before their file, so that nobody waits for a disk; nil: there is none
}

// openEvents opens the file that settings name.
func openEvents(set config.Log, log *slog.Logger) (eventLog, error) {
	if set.Events == "" {
		return eventLog{Log: events.New(nil)}, nil
	}
	file := &eventFile{File: os.Stdout, log: log}
	if set.Events != "stdout" {
		// A pipe that nobody reads is an error, and not waited for.
		opened, err := os.OpenFile(set.Events, os.O_APPEND|os.O_CREATE|os.O_WRONLY|syscall.O_NONBLOCK, 0o600)
		if err != nil {
			return eventLog{}, fmt.Errorf("event-log: %w", err)
		}
		file.File = opened
	}
	lines := logqueue.New(file, eventsWaiting, droppedEvents)
	return eventLog{events.New(lines), lines}, nil
}

// droppedEvents is the line that says how many were not written.
func droppedEvents(lines int) []byte {
	line, _ := json.Marshal(map[string]any{"at": time.Now().UTC(), "event": "dropped", "more": lines}) // it never fails
	return append(line, '\n')
}

// close writes what is still to be written, unless that takes too long.
func (l eventLog) close() {
	l.Log.Close()
	if l.lines != nil {
		l.lines.Close(logTime)
	}
}

// note notes what has happened to the process.
func (l eventLog) note(k events.Kind, reason string) {
	l.Add(events.Event{At: time.Now(), Kind: k, Reason: reason})
}

// eventFile is a file to which the queue appends lines.
type eventFile struct {
	*os.File
	log *slog.Logger
	bad bool // nothing could be written, and the log has said so
}

// Write implements io.Writer. The log has a line for the first of many failures.
func (f *eventFile) Write(p []byte) (n int, err error) {
	n, err = f.File.Write(p)
	if err != nil && !f.bad {
		f.log.Error("events cannot be written", "event-log", f.Name(), "error", err)
	}
	f.bad = err != nil
	return n, err
}
