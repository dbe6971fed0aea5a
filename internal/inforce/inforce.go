// Package inforce is what is shown of the operator's settings: the values in force, how the last reload went, the files
// that they name, and the drain at the end. There is no password in it.
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
	Files    []File    `json:"files"`
	Drain    *Drain    `json:"drain"` // nil: the proxy does not drain
}

// File is a file that a setting names, of certificates or of passwords, as it is in use.
type File struct {
	Name    string     `json:"name"`
	Holds   string     `json:"holds"`
	Since   time.Time  `json:"since"`   // what it holds has been in use since then
	Ends    *time.Time `json:"ends"`    // the first of its certificates; nil: it has none
	Trouble string     `json:"trouble"` // why it cannot be used as it is now; "": it is in use
}

// Drain is how far a drain is.
type Drain struct {
	Since  time.Time `json:"since"`
	Closes time.Time `json:"closes"`    // when the listeners close
	Until  time.Time `json:"until"`     // who is waited for is closed then
	Left   string    `json:"waits_for"` // who that is, and which locks they hold
}
