// Package simulation runs the lock engine, its stores and Redis in one bubble of testing/synctest, for hours of its time: random users
// of internal/history, faults of nodes and links, clocks that jump, and the oracles over what they were told. A seed decides
// everything. README.md tells how to run it longer, and what is found.
package simulation
