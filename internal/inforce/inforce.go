// Package inforce is what is shown of the operator's settings: the values in force, and how the last reload went. There
// is no password in it.
package inforce

import (
	"strings"
	"time"
)

// Setting is one setting as it holds.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"` // as one would write it
	From  string `json:"from"`  // default, flag, environment or file
	Live  bool   `json:"live"`  // a reload may change it; else it needs a restart
	// Waiting is what was read since the start and waits for a restart; nil: nothing.
	Waiting *string `json:"waiting"`
}

// Reload is what became of settings that were read again, or at At for the first time.
type Reload struct {
	At      time.Time `json:"at"`
	Taken   []string  `json:"taken,omitempty"`   // names of settings, and of files
	Restart []string  `json:"restart,omitempty"` // settings that are another since the start, and need a restart
	Faults  []string  `json:"faults,omitempty"`  // of what stays as it was
}

// Good says that all was taken, or waits for a restart.
func (r Reload) Good() bool { return len(r.Faults) == 0 }

// Said is OK, or what stays as it was, with what was taken nevertheless.
func (r Reload) Said() string {
	text := "OK"
	if !r.Good() {
		text = strings.Join(r.Faults, "\n")
	}
	if len(r.Taken) > 0 {
		text += "; taken: " + strings.Join(r.Taken, ", ")
	}
	if len(r.Restart) > 0 {
		text += "; a restart is needed for: " + strings.Join(r.Restart, ", ")
	}
	return text
}

// State is all of it.
type State struct {
	Settings []Setting `json:"settings"`
	Reload   Reload    `json:"last_reload"`
}
