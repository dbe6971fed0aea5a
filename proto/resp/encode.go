package resp

import (
	"strconv"
	"strings"
)

// Every Append function appends one frame, or the header of an aggregate, to b
// and returns the result. proto is the client's version of the protocol: 3, or
// anything else for 2, in which a type that only RESP3 has becomes the one that
// Redis sends in its place.

// AppendSimple appends the status s. Line ends in it become spaces.
func AppendSimple(b []byte, s string) []byte { return appendLine(b, '+', s) }

// AppendError appends the error s, which begins with its code ("ERR …"). Line
// ends in it become spaces.
func AppendError(b []byte, s string) []byte { return appendLine(b, '-', s) }

// AppendInt appends an integer.
func AppendInt(b []byte, n int64) []byte { return appendHeader(b, ':', n) }

// AppendBulk appends a string of any bytes.
func AppendBulk(b, s []byte) []byte {
	b = appendHeader(b, '$', int64(len(s)))
	return append(append(b, s...), '\r', '\n')
}

// AppendBulkString appends a string of any bytes.
func AppendBulkString(b []byte, s string) []byte {
	b = appendHeader(b, '$', int64(len(s)))
	return append(append(b, s...), '\r', '\n')
}

// AppendNull appends the null that stands for a missing value.
func AppendNull(b []byte, proto int) []byte {
	if proto == 3 {
		return append(b, "_\r\n"...)
	}
	return append(b, "$-1\r\n"...)
}

// AppendArray appends the header of an array of n elements.
func AppendArray(b []byte, n int) []byte { return appendHeader(b, '*', int64(n)) }

// AppendMap appends the header of a map of n pairs.
func AppendMap(b []byte, proto, n int) []byte {
	if proto == 3 {
		return appendHeader(b, '%', int64(n))
	}
	return appendHeader(b, '*', 2*int64(n))
}

// AppendSet appends the header of a set of n elements.
func AppendSet(b []byte, proto, n int) []byte {
	if proto == 3 {
		return appendHeader(b, '~', int64(n))
	}
	return appendHeader(b, '*', int64(n))
}

// AppendPush appends the header of a push of n elements.
func AppendPush(b []byte, proto, n int) []byte {
	if proto == 3 {
		return appendHeader(b, '>', int64(n))
	}
	return appendHeader(b, '*', int64(n))
}

// AppendVerbatim appends a text to be shown as it is. format has three letters
// ("txt", "mkd").
func AppendVerbatim(b []byte, proto int, format, text string) []byte {
	if proto != 3 {
		return AppendBulkString(b, text)
	}
	b = appendHeader(b, '=', int64(len(format)+1+len(text)))
	b = append(append(b, format...), ':')
	return append(append(b, text...), '\r', '\n')
}

// AppendCommand appends a command of the given arguments, its name first.
func AppendCommand(b []byte, args ...string) []byte {
	b = AppendArray(b, len(args))
	for _, arg := range args {
		b = AppendBulkString(b, arg)
	}
	return b
}

func appendHeader(b []byte, kind byte, n int64) []byte {
	b = strconv.AppendInt(append(b, kind), n, 10)
	return append(b, '\r', '\n')
}

func appendLine(b []byte, kind byte, s string) []byte {
	b = append(append(b, kind), lineEnds.Replace(s)...)
	return append(b, '\r', '\n')
}

// lineEnds turns the ends of lines into spaces, as Redis does in texts.
var lineEnds = strings.NewReplacer("\r", " ", "\n", " ")

// headBytes is enough for the head of most words, and for their CR LF.
const headBytes = 16

// Command is a command of the given words, its name first.
func Command(words [][]byte) []byte {
	size := headBytes
	for _, w := range words {
		size += headBytes + len(w)
	}
	b := AppendArray(make([]byte, 0, size), len(words))
	for _, w := range words {
		b = AppendBulk(b, w)
	}
	return b
}
