//go:build race

package history

// raceEnabled says that the tests run under the race detector; the binary under test then has it too.
const raceEnabled = true
