package session

// noCluster is Redis' answer to what only a cluster's node would take.
func (s *Session) noCluster([][]byte) { s.error("ERR This instance has cluster support disabled") }

// cluster answers CLUSTER with a subcommand Redis did not list. It never asks Redis, which may be a cluster's node and
// would give away the others' addresses, or reset itself.
func (s *Session) cluster(args [][]byte) {
	c := lookUp(s.srv.table.Load().commands, []byte("cluster"))
	if c == nil || c.subs == nil || len(c.subs) < 2 { // it did not list any
		s.noCluster(args)
		return
	}
	unknownSubcommand(s, args)
}
