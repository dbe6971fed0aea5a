package commands

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/lockproxy/lockproxy/internal/glob"
	"github.com/lockproxy/lockproxy/internal/lockstore"
)

// Option is one option of a verb: a keyword, alone or with one value.
type Option struct {
	Keyword string
	Value   string // name of the value in the help; "" = a bare keyword
	kind    valueKind
	// group names what at most one option of a call may belong to; "" = its own.
	group string
	// not is the keyword of an option of another group that cannot be said with this one; "" = none.
	not string
	// needs is the error when nothing of the group lease is said with this one; nil: nothing needs to be.
	needs error
}

type valueKind int

const (
	noValue   valueKind = iota
	milli               // integer > 0, in ms
	seconds             // integer > 0, in s, kept in ms
	waiting             // integer >= 0, in ms
	count               // integer > 0
	ownerName           // lockstore.ValidOwner
	text                // not empty
)

var (
	errName  = errors.New("ERR invalid lock name: more than " + strconv.Itoa(lockstore.MaxName) + " bytes")
	errOwner = errors.New("ERR invalid owner: 1 to 256 bytes, not 'mode', not 'SELF' (leave OWNER out, or say SELF alone), not ending in ':write', and not of the form <uuid>:<number>")

	errPattern = errors.New("ERR invalid pattern: more than " + strconv.Itoa(glob.MaxLength) + " bytes")

	errLeaseless = errors.New("ERR OWNER needs EX or PX: a named owner has the lock for that long; RENEW begins the lease anew, UNLOCK ends it")
	errOutlived  = errors.New("ERR BLOCK must be shorter than EX or PX: nobody renews the locks of a named owner that MULTILOCK has while it waits for the others")
)

// largest is the largest integer that every client can hold: 2^53.
const largest = int64(1) << 53

// given is what a call said. It is short: to look through it takes less time than a map.
type given []said

// said is an option that a call gave, with its value: an integer, in ms or a count, or a word.
type said struct {
	*Option
	number int64
	word   string
}

// option is what was said with a keyword; the zero value: nothing.
func (g given) option(keyword string) said {
	for _, s := range g {
		if s.Keyword == keyword {
			return s
		}
	}
	return said{}
}

func (g given) has(keyword string) bool { return g.option(keyword).Option != nil }

func (g given) number(keyword string) int64 { return g.option(keyword).number }

func (g given) word(keyword string) string { return g.option(keyword).word }

// hasGroup says whether an option of that group was given; "" is no group.
func (g given) hasGroup(group string) bool {
	return group != "" && slices.ContainsFunc(g, func(s said) bool { return s.group == group })
}

// excludes says whether an option was given that cannot be said with this one.
func (g given) excludes(o *Option) bool {
	return slices.ContainsFunc(g, func(s said) bool { return s.not == o.Keyword || o.not == s.Keyword })
}

// badNumber is the error for the value of an option.
func badNumber(o *Option) error { return errors.New(notANumber + " near '" + o.Keyword + "'") }

// nearShown is how many bytes of a word a syntax error shows.
const nearShown = 64

// syntaxNear is the error for a word of a call. It shows the beginning of the word, in ASCII and on one line whatever
// bytes the word has.
func syntaxNear(word []byte) error {
	line := []byte("ERR syntax error near '")
	for _, c := range word[:min(len(word), nearShown)] {
		switch {
		case c == '\'' || c == '\\':
			line = append(line, '\\', c)
		case c < ' ' || c > '~':
			line = fmt.Appendf(line, "\\x%02x", c)
		default:
			line = append(line, c)
		}
	}
	if len(word) > nearShown {
		line = append(line, "..."...)
	}
	return errors.New(string(line) + "'")
}

// valueMissing is the error for the keyword of an option whose value is missing.
func valueMissing(keyword []byte) error {
	return fmt.Errorf("%w: its value is missing", syntaxNear(keyword))
}

// parse reads options in any order. A repeated, unknown or contradictory one is a syntax error that names it, and so is
// one without its value. The error of a value that is no number names its option, too.
func parse(options []Option, tokens [][]byte) (given, error) {
	var g given
	for i := 0; i < len(tokens); i++ {
		o := find(options, tokens[i])
		if o == nil || g.has(o.Keyword) || g.hasGroup(o.group) || g.excludes(o) {
			return g, syntaxNear(tokens[i])
		}
		if o.kind == noValue {
			g = append(g, said{Option: o})
			continue
		}
		if i++; i == len(tokens) || o.kind == text && len(tokens[i]) == 0 { // which would choose nothing, or anything
			return g, valueMissing(tokens[i-1])
		}
		s, err := o.valued(tokens[i])
		if err != nil {
			return g, err
		}
		g = append(g, s)
	}
	for _, s := range g {
		if s.needs != nil && !g.hasGroup("lease") {
			return g, s.needs
		}
	}
	return g, nil
}

func find(options []Option, token []byte) *Option {
	for i := range options {
		if same(token, options[i].Keyword) {
			return &options[i]
		}
	}
	return nil
}

// valued is the option with that value.
func (o *Option) valued(token []byte) (said, error) {
	switch o.kind {
	case text:
		return said{Option: o, word: string(token)}, nil
	case ownerName:
		if !lockstore.ValidOwner(string(token)) {
			return said{}, errOwner
		}
		return said{Option: o, word: string(token)}, nil
	}
	n, ok := integer(token)
	if o.kind == seconds {
		ok = ok && n <= largest/1000
		n *= 1000
	}
	if !ok || n == 0 && o.kind != waiting {
		return said{}, badNumber(o)
	}
	return said{Option: o, number: n}, nil
}

// integer reads a whole number from 0 to 2^53 as Redis does: no sign, no leading zero, nothing else.
func integer(token []byte) (n int64, ok bool) {
	n, err := strconv.ParseInt(string(token), 10, 64)
	return n, err == nil && n >= 0 && n <= largest && strconv.FormatInt(n, 10) == string(token)
}
