package session

import "strings"

// clientReply is CLIENT REPLY ON|OFF|SKIP. It is this proxy that keeps the replies back: Redis gives them all.
func (s *Session) clientReply(args [][]byte) {
	switch strings.ToUpper(string(args[2])) {
	case "ON":
		s.flush()
		s.replies.silent, s.replies.off = false, false
		s.ok()
	case "OFF":
		s.flush()
		s.replies.silent, s.replies.off = true, true
	case "SKIP":
		s.replies.skip = !s.replies.off
	default:
		s.error(syntaxError)
	}
}

// quietly has the command behind CLIENT REPLY SKIP run.
func (s *Session) quietly(run func()) {
	s.forward()
	s.flush()
	s.replies.silent, s.replies.skip = true, false
	run()
	s.forward()
	if s.own.dedicated != nil {
		s.own.dedicated.Flush()
	}
	s.flush()
	if s.replies.silent { // the command may have been CLIENT REPLY ON
		s.replies.silent = s.replies.off
	}
}

// resetReplyMode is RESET's part of it. Behind SKIP, its own reply stays unwanted.
func (s *Session) resetReplyMode() {
	s.flush()
	s.replies.silent = s.replies.silent && !s.replies.off
	s.replies.off, s.replies.skip = false, false
}
