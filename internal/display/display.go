// Package display writes names, times and numbers for people: on the page for operators, and in a terminal.
package display

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// A name is shown by its beginning and its end, since long ones often differ there only.
const (
	shownHead, shownTail = 72, 20
	// wholeMost is how much the page of one lock shows of its name: a lock's name is no longer, what else there is may be.
	wholeMost = 4096
)

// Shown is a name that a client has chosen, in a few characters none of which does anything but stand there.
func Shown(name string) string {
	head, rest := visible(name, shownHead)
	if len(rest) <= 4*shownTail {
		if tail, more := visible(rest, shownTail); more == "" {
			return head + tail
		}
	}
	at := len(rest)
	for range shownTail {
		_, n := utf8.DecodeLastRuneInString(rest[:at])
		at -= n
	}
	tail, _ := visible(rest[at:], shownTail)
	return head + "…" + tail + " (" + Number(int64(len(name))) + " bytes)"
}

// Whole is all of a name, as far as names of locks go.
func Whole(name string) string {
	text, rest := visible(name, wholeMost)
	if rest != "" {
		text += "… (" + Number(int64(len(name))) + " bytes)"
	}
	return text
}

// mostMarks is how many marks may stand on one letter: languages need no more, and a pile of them covers other lines.
const mostMarks = 3

// visible writes out the first characters of a name, and returns what is left of it. What has no shape of its own, turns
// the direction of what follows, is one mark too many, or is no UTF-8 is written as Go does.
func visible(name string, most int) (text, rest string) {
	var b strings.Builder
	for marks := 0; most > 0 && name != ""; most-- {
		r, n := utf8.DecodeRuneInString(name)
		if marks++; !unicode.Is(unicode.M, r) {
			marks = 0
		}
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, name[0])
		case unicode.IsPrint(r) && marks <= mostMarks:
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		name = name[n:]
	}
	return b.String(), name
}

// Ago is a time in the two largest units that say something.
func Ago(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return strconv.FormatFloat(max(0, d.Seconds()), 'f', 1, 64) + " s"
	case d < time.Minute:
		return strconv.Itoa(int(d.Seconds())) + " s"
	case d < time.Hour:
		return two(int(d.Minutes()), "min", int(d.Seconds())%60, "s")
	case d < 24*time.Hour:
		return two(int(d.Hours()), "h", int(d.Minutes())%60, "min")
	}
	return two(int(d.Hours())/24, "d", int(d.Hours())%24, "h")
}

// Brief is a time of which thousandths of a second matter.
func Brief(d time.Duration) string {
	if d >= time.Second {
		return Ago(d)
	}
	return Figure(math.Round(10*d.Seconds()*1000)/10) + " ms"
}

func two(a int, unit string, b int, smaller string) string {
	if b == 0 {
		return strconv.Itoa(a) + " " + unit
	}
	return strconv.Itoa(a) + " " + unit + " " + strconv.Itoa(b) + " " + smaller
}

// Number has a comma before each three digits.
func Number(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for at := len(digits) - 3; at > 0 && digits[at-1] != '-'; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// Figure is a number with a decimal where that says something.
func Figure(f float64) string {
	if f < 10 && f != math.Trunc(f) {
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	return Number(int64(f + 0.5))
}
