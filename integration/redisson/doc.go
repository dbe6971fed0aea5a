// Package redisson holds lockproxy against the real Redisson: on one Redis, each side's locks must be the other's, and
// Redisson must work with lockproxy as its server. Only `make interop`, or -run Interop, starts it; with -write as well,
// docs/REDISSON-TESTS.md and the lists in docs/redisson are written from what passed.
package redisson
