package commands

import (
	"errors"
	"strconv"

	"github.com/lockproxy/lockproxy/internal/lockstore"
)

// keyPosition says where in a call its keys are.
type keyPosition int

const (
	noKey       keyPosition = iota
	oneKey                  // args[1]
	countedKeys             // behind args[1], which is their number
)

// maxKeys is the number of keys that one call may name: each one is a round trip of its own.
const maxKeys = 1024

// Errors for a number of keys, in the words of SINTERCARD.
var (
	errNumkeys  = errors.New("ERR numkeys should be greater than 0")
	errFewKeys  = errors.New("ERR Number of keys can't be greater than number of args")
	errManyKeys = errors.New("ERR numkeys should be at most " + strconv.Itoa(maxKeys))
)

// split takes a call apart: its keys, and what follows them. args has the verb's arity.
func (v *Verb) split(args [][]byte) (keys, rest [][]byte, err error) {
	switch v.keys {
	case oneKey:
		return args[1:2], args[2:], nil
	case countedKeys:
		n, ok := integer(args[1])
		switch {
		case !ok || n == 0:
			return nil, nil, errNumkeys
		case n > maxKeys:
			return nil, nil, errManyKeys
		case n > int64(len(args)-2):
			return nil, nil, errFewKeys
		}
		return args[2 : 2+n], args[2+n:], nil
	}
	return nil, args[1:], nil
}

// checkKeys says what is wrong with the keys of a call, before anything is done.
func (v *Verb) checkKeys(args [][]byte) error {
	keys, _, err := v.split(args)
	for _, key := range keys {
		if len(key) > lockstore.MaxName {
			return errName
		}
	}
	return err
}

// keyed says whether a call of the verb names keys.
func (v *Verb) keyed() bool { return v.keys != noKey }

// Keys are the keys of a call that has the verb's arity, for COMMAND GETKEYS, but for those of the command within; none
// when their number is wrong.
func (v *Verb) Keys(args [][]byte) [][]byte {
	keys, _, err := v.split(args)
	if err != nil {
		return nil
	}
	return keys
}
