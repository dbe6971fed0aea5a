package session

// ReadFrom says which nodes of a cluster answer what clients read.
type ReadFrom string

// The nodes that are read from.
const (
	ReadMaster  ReadFrom = "master"
	ReadReplica ReadFrom = "replica" // replicas, for clients that have not said READWRITE
	ReadClient  ReadFrom = "client"  // replicas, for clients that have said READONLY
)

// mayReadReplicas says that replicas are read from, for some clients at least.
func (s *Server) mayReadReplicas() bool {
	return s.o.Cluster != nil && (s.o.ReadFrom == ReadReplica || s.o.ReadFrom == ReadClient)
}

// readsReplicas says whether what the client reads may come from a replica. While its connection holds a lock it may not,
// since what the last holder wrote might be missing there; nor while it has a connection of its own, as under WATCH, which
// is about what the master has.
func (s *Session) readsReplicas() bool {
	return s.pipes.replicas && s.own.dedicated == nil && s.held() == 0
}
