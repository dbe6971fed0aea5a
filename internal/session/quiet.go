package session

import "strings"

// clientReply is CLIENT REPLY ON|OFF|SKIP. It is this proxy that keeps the replies back: Redis gives them all.
func (s *Session) clientReply(args [][]byte) {
	switch strings.ToUpper(string(args[2])) {
	case "ON":
		s.flush()
		s.silent, s.off = false, false
		s.ok()
	case "OFF":
		s.flush()
		s.silent, s.off = true, true
	case "SKIP":
		s.skip = !s.off
	default:
		s.error(syntaxError)
	}
}

// quietly has the command behind CLIENT REPLY SKIP run.
func (s *Session) quietly(run func()) {
	s.forward()
	s.flush()
	s.silent, s.skip = true, false
	run()
	s.forward()
	if s.dedicated != nil {
		s.dedicated.Flush()
	}
	s.flush()
	if s.silent { // the command may have been CLIENT REPLY ON
		s.silent = s.off
	}
}

// resetReplyMode is RESET's part of it. Behind SKIP, its own reply stays unwanted.
func (s *Session) resetReplyMode() {
	s.flush()
	s.silent = s.silent && !s.off
	s.off, s.skip = false, false
}
