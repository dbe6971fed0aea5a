// Package integration tests lockproxy as its users meet it: the built binary in a process of its own, real redis-server
// processes behind it, and raw connections or real clients before it. Nothing here looks inside.
package integration
