package session

// LastCommand is the last command of the client at addr that has begun; false: there is no such client any more.
func (s *Server) LastCommand(addr string) (name string, there bool) {
	for _, c := range s.clients.snapshot() {
		if c.client.Peer.Addr == addr {
			return c.facts().Last, true
		}
	}
	return "", false
}
