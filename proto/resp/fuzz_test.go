package resp

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/redcon"
)

// fuzzLimits are low enough for a fuzzer to reach all of them.
var fuzzLimits = []Limits{{}, {Args: 3, Bulk: 40, Inline: 30, Command: 60}, UnauthenticatedLimits}

// parsed is what redcon makes of what r delivers in slices of size bytes,
// reading ahead at times when ahead is set.
func parsed(t *testing.T, r *Reader, l Limits, size int, ahead func() int) (cmds []string, err error) {
	t.Helper()
	l = l.filled()
	p := make([]byte, max(size, len(standIn)))
	for {
		if ahead != nil && ahead() > 100 {
			_ = r.ReadAhead(1 << 20) // its error comes again from Read
		}
		n, err := r.Read(p)
		if err != nil {
			return cmds, err
		}
		b := p[:n]
		if long := r.Long(); long != nil {
			b = long
			if len(b) <= len(p) || string(p[:n]) != string(standIn) {
				t.Fatalf("%q stands for %q in a slice of %d", p[:n], b, len(p))
			}
		}
		cmds = append(cmds, cut(t, b, l)...)
	}
}

// cut returns the commands that b consists of, which redcon and CutCommand find alike.
func cut(t *testing.T, b []byte, l Limits) (cmds []string) {
	t.Helper()
	rd := redcon.NewReader(bytes.NewReader(b))
	for {
		cmd, err := rd.ReadCommand()
		if err == io.EOF && len(b) == 0 {
			return cmds
		}
		if err != nil {
			t.Fatalf("redcon before %q: %v", b, err)
		}
		words, n := CutCommand(nil, b)
		if !slices.EqualFunc(words, cmd.Args, bytes.Equal) || string(b[:n]) != string(cmd.Raw) {
			t.Fatalf("redcon cuts %q, CutCommand %q", cmd.Raw, words)
		}
		b = b[n:]
		if cmd.Raw[0] != '*' || len(cmd.Raw) > l.Command || len(cmd.Args) > l.Args || len(cmd.Args) == 0 {
			t.Fatalf("beyond the bounds: %q", cmd.Raw)
		}
		for _, arg := range cmd.Args {
			if len(arg) > l.Bulk {
				t.Fatalf("beyond the bounds: %q", cmd.Raw)
			}
		}
		cmds = append(cmds, string(cmd.Raw))
	}
}

// model is Redis' parser over a whole input, written for clarity: the commands
// in it, and the text of the error that ends it.
func model(in string, l Limits) (cmds []string, text string) {
	l = l.filled()
	fail := func(err error) ([]string, string) { return cmds, errText(err) }
	for in != "" {
		if in[0] != '*' {
			line, rest, err := modelLine(in, "\n", l.Inline, errInlineTooBig)
			if line == nil {
				return fail(err)
			}
			cmd, err := appendInline(nil, append(line, '\n'), &l)
			if err != nil {
				return fail(err)
			}
			if len(cmd) > 0 {
				cmds = append(cmds, string(cmd))
			}
			in = rest
			continue
		}
		line, rest, err := modelLine(in, "\r", l.Inline, errCountTooBig)
		if line == nil || rest == "" {
			return fail(err)
		}
		in = rest[1:]
		count, ok := Integer(line[1:])
		if !ok || count > 1<<31-1 {
			return fail(errMultibulkLength)
		}
		if err := l.checkArgs(count); err != nil {
			return fail(err)
		}
		args := []string{}
		room := l.Command - len(line) - 2
		for int64(len(args)) < count {
			line, rest, err := modelLine(in, "\r", l.Inline, errBulkCountTooBig)
			if line == nil || rest == "" {
				return fail(err)
			}
			in = rest[1:]
			if len(line) == 0 {
				return fail(expectedDollar(' '))
			}
			if line[0] != '$' {
				return fail(expectedDollar(line[0]))
			}
			size, ok := Integer(line[1:])
			if !ok {
				return fail(errBulkLength)
			}
			if err := l.checkBulk(size); err != nil {
				return fail(err)
			}
			if room -= len(line) + 2 + int(size) + 2; room < 0 {
				return fail(errCommandTooBig)
			}
			if int64(len(in)) < size+2 {
				return cmds, ""
			}
			args = append(args, in[:size])
			in = in[size+2:]
		}
		if count > 0 {
			cmds = append(cmds, mb(args...))
		}
	}
	return cmds, ""
}

// modelLine cuts a line off in; it returns nil without an end, with the error
// when the line is too long by then.
func modelLine(in, end string, limit int, tooLong error) (line []byte, rest string, err error) {
	n := strings.IndexAny(in, end+"\x00")
	if n >= 0 && n <= limit && in[n] != 0 {
		return append([]byte{}, in[:n]...), in[n+1:], nil
	}
	if len(in) > limit {
		return nil, "", tooLong
	}
	return nil, "", nil
}

func FuzzReader(f *testing.F) {
	for i, q := range requests {
		if len(q.in) > 8192 {
			continue // TestRequests has it; fuzzLimits make shorter ones do the same
		}
		f.Add([]byte(q.in), uint64(i), uint(i))
		f.Add([]byte(ping+q.in+ping), uint64(i), uint(i))
	}
	f.Fuzz(func(t *testing.T, in []byte, seed uint64, choice uint) {
		text, l := string(in), fuzzLimits[choice%uint(len(fuzzLimits))]
		want, wantErr := model(text, l)
		size := anySize(seed)
		for _, c := range []struct {
			chop func() int
			into int
			look func() int
		}{
			{every(1 << 20), 4096, nil},
			{every(1), 4096, nil},
			{anySize(seed), size(), nil},
			{anySize(seed), size(), size},
		} {
			got, err := parsed(t, NewReader(&chopped{text, c.chop}, l), l, c.into, c.look)
			if !slices.Equal(got, want) || errText(err) != wantErr {
				t.Fatalf("into %d: got %.200q, %v; want %.200q, %s", c.into, got, err, want, wantErr)
			}
			if errText(err) == "" && !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
		}
	})
}
