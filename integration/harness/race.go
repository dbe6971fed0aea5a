//go:build race

package harness

// RaceEnabled says that the tests run under the race detector; the binary under test then has it too.
const RaceEnabled = true
