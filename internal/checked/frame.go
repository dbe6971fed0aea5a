package checked

import (
	"bytes"
	"errors"
	"strconv"
)

// maxElements bounds the elements of a reply, those of aggregates in it included: rueidis takes 40 bytes for each.
const maxElements = 1 << 18

var (
	errEnd      = errors.New("a line that does not end in CR LF, or not where its type says")
	errPush     = errors.New("a message, or attributes, inside a reply")
	errBytes    = errors.New("a reply of too many bytes")
	errElements = errors.New("a reply of too many elements")
)

// frame is one reply, or message, or command, all of it and nothing else: proto/resp has found its end.
type frame []byte

// next takes the first line off b, as rueidis does, with the text that it announces, as much as is in b: text is that,
// or what is in the line. An aggregate is its line alone: its elements follow.
func next(b frame) (kind byte, text []byte, rest frame, err error) {
	end := bytes.IndexByte(b, '\n')
	if end < 2 || b[end-1] != '\r' {
		return 0, nil, nil, errEnd
	}
	kind, text, rest = b[0], b[1:end-1], b[end+1:]
	switch kind {
	case '$', '=', '!':
		if n, err := strconv.Atoi(string(text)); err == nil && n >= 0 {
			text, rest = rest[:min(n, len(rest))], rest[min(n+2, len(rest)):]
		}
	}
	return kind, text, rest, nil
}

// judge says whether rueidis finds the same lines in a reply, and can keep them. It takes the first LF for a line's end,
// does not look for that of a boolean or a null, and counts a message inside a reply as an element, unlike Redis.
func (f frame) judge() error {
	elements := 0 // with the frame itself
	for rest := f; len(rest) > 0; elements++ {
		kind, text, behind, err := next(rest)
		if err != nil {
			return err
		}
		switch {
		case kind == '|', kind == '>' && elements > 0:
			return errPush
		case kind == '#' && len(text) != 1, kind == '_' && len(text) != 0:
			return errEnd
		}
		rest = behind
	}
	if elements > maxElements {
		return errElements
	}
	return nil
}

// name is the text of a reply or, of an aggregate, that of its first element. elements is how many the aggregate has;
// 0: it is none, or empty.
func (f frame) name() (text []byte, elements int) {
	kind, line, rest, _ := next(f)
	switch kind {
	case '*', '~', '>', '%':
		elements, _ = strconv.Atoi(string(line))
		if kind == '%' {
			elements *= 2
		}
		_, line, _, _ = next(rest)
	}
	return line, max(elements, 0)
}
